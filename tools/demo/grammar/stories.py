"""Whole stories: an opening that fits the hero, then one of the plots."""

import random

from . import lexicon as lx
from .plots_a import PLOTS as PLOTS_A
from .plots_b import PLOTS as PLOTS_B
from .plots_c import PLOTS as PLOTS_C
from .story import Place, Story, Thing, Who

PLOTS = [*PLOTS_A, *PLOTS_B, *PLOTS_C]

# How a hero enters. {desc}: "little girl", "fox", "kind old wizard"; the sentence gives only kind, name and home.
OPENINGS = [
    "once upon a time, there was a {desc} named {A}. {A.he} lived {A.home}.",
    "once upon a time, there was a {desc} named {A} who lived {A.home}.",
    "once upon a time, there was a {desc}. {A.his} name was {A}, and {A.he} lived {A.home}.",
    "once upon a time, there was a {desc} who lived {A.home}. {A.his} name was {A}.",
    "once upon a time, there lived a {desc} named {A}. {A.his} home was {A.home}.",
    "once upon a time, {A.home}, there lived a {desc} named {A}.",
    "once upon a time, a {desc} named {A} lived {A.home}.",
    "once upon a time there was a {desc} named {A}. {A.he} lived {A.home}.",
    "once upon a time there was a {desc} who lived {A.home}. {A.his} name was {A}.",
    "there once was a {desc} named {A}. {A.he} lived {A.home}.",
    "there was once a {desc} called {A}, who lived {A.home}.",
    "long ago, {A.home}, there lived a {desc} named {A}.",
    "long, long ago there was a {desc} named {A}. {A.he} lived {A.home}.",
    "{A} was a {desc}. {A.he} lived {A.home}.",
    "{A} was a {desc} who lived {A.home}.",
    "{A.home}, there lived a {desc} named {A}.",
    "this is the story of a {desc} named {A}. {A.he} lived {A.home}.",
    "the {desc} in this story was called {A}. {A.he} lived {A.home}.",
    "a {desc} named {A} lived {A.home}.",
    "far away, {A.home}, lived a {desc} named {A}.",
    "many years ago, a {desc} named {A} lived {A.home}.",
    "in a land far away there was a {desc} named {A} who lived {A.home}.",
]
TRAITS = [
    "", "", "{A} loved {~hobby}.", "{A} was {~nice} and {~nice2}, and {A.he} loved {~hobby}.", "{A.he} was {~nice} and loved {~hobby}.",
    "everyone said that {A} was very {~nice}.", "most of all, {A} loved {~hobby}.", "every day {A} liked {~hobby}.",
]
lx.PICK["nice2"] = "brave|patient|strong|good|full of ideas|always in a good mood".split("|")
BUILDS = "tree house|boat|bird house|bench|swing|cart|raft|sledge|dog house|little bridge".split("|")
SHORT_NAMES = "Pip|Sunny|Feather|Kiwi|Snow|Blue|Peep|Sky".split("|")


class Tale(Story):
    """A story of the corpus: the slots of `Story`, and further ones for single plots."""

    def __init__(self, rng: random.Random, options: dict, **fixed):
        super().__init__(rng, options.get("hero", "any"), **fixed)
        if "weather" in options:
            self.values["wadj"] = rng.choice(options["weather"])
        self.banned = set(options.get("ban", ()))
        if "far" in options:
            self.family_weights = [0, 0, 4, 4, 2, 2]
        if "o" in options and "o" not in fixed:
            self.values["o"] = Thing(options["o"], rng.choice(lx.COLOURS))

    def _make_desc(self) -> str:
        a, rng = self["A"], self.rng
        if a.group == "child":
            return rng.choice(["little ", "little ", "young ", "small ", "{~nice} ", "{~nice} little ", ""]) + a.noun
        if a.group == "animal":
            return rng.choice(["little ", "small ", "young ", "{~nice} ", "{~nice} little ", "", ""]) + a.noun
        return rng.choice(["{~nice} ", "young ", "old ", "lonely ", "", ""]) + a.noun

    def _make_lake(self) -> Place:
        name = self.rng.choice(["the lake", "the river"])
        return Place(*next(p for p in lx.PLACES if p[0] == name))

    def _make_build(self) -> str:
        return self.rng.choice(BUILDS)

    def _make_num3(self) -> str:
        return "three"

    def _make_num4(self) -> str:
        return self.rng.choice(["fourth", "fifth", "sixth"])

    def _make_small2(self) -> str:
        return self.rng.choice(SHORT_NAMES)

    def _make_day1(self) -> str:
        return self.rng.choice(["one morning", "one day"])

    def _make_bite(self) -> str:
        return self.rng.choice(["half", "most", "a bit"])


def tell(rng: random.Random, plot: int | None = None, **fixed) -> str:
    """One story; `fixed` presets slots such as `A` (the hero) or `o` (the object)."""
    if plot is None:
        plot = rng.randrange(len(PLOTS))
    _, options, text = PLOTS[plot]
    tale = Tale(rng, options, **fixed)
    trait = rng.choice(TRAITS) if options.get("trait", True) else ""
    return tale.render(f"{rng.choice(OPENINGS)} {trait}\n\n{text}")


def hero_fits(plot: int, group: str) -> bool:
    """Whether a hero of `group` may lead the plot."""
    need = PLOTS[plot][1].get("hero", "any")
    return need in ("any", group) or (need == "young" and group in ("child", "animal"))


def plots_for(group: str) -> list[int]:
    """Plots that a hero of `group` may lead."""
    return [i for i in range(len(PLOTS)) if hero_fits(i, group)]


def object_plots_for(group: str) -> list[int]:
    """Plots that a hero of `group` may lead and in which any object plays a part."""
    return [i for i in plots_for(group) if "{o.full}" in PLOTS[i][2] and "o" not in PLOTS[i][1]]


def theme(plot: int) -> str | None:
    """The plot's theme when it is plain text (no slots)."""
    text = PLOTS[plot][0]
    return None if "{" in text else text


def hero_of(rng: random.Random, noun: str | None = None, name: str | None = None) -> Who:
    """A hero for a request: of the given kind, with the given name."""
    story = Story(rng)
    if noun is None or noun in ("girl", "boy"):
        gender = {"girl": "f", "boy": "m"}.get(noun, rng.choice("fm"))
        who = story.person("child", gender)
    else:
        gender = rng.choice("fm")
        table = {n: (h, "animal", "") for n, h, _ in lx.ANIMALS} | {n: (h, "folk", g) for n, h, g in lx.FOLK}
        home, group, only = table[noun]
        who = Who("", noun, only or gender, group, home)
        who.name = story.name_for(noun, who.gender)
    if name:
        who.name = name
    return who
