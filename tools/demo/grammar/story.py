"""A story's cast and things: chosen once, so that every mention agrees with every other."""

import random
from dataclasses import dataclass

from . import lexicon as lx
from .engine import render

PRONOUNS = {
    "f": {"he": "she", "him": "her", "his": "her", "himself": "herself", "hiss": "hers"},
    "m": {"he": "he", "him": "him", "his": "his", "himself": "himself", "hiss": "his"},
}


@dataclass
class Who:
    """A person, animal or fairy-tale figure; `group` is child, animal, folk, family or job."""

    name: str
    noun: str
    gender: str
    group: str
    home: str = ""
    extra: str = ""

    def attr(self, attr: str) -> str:
        """`{A.attr}`."""
        if attr in PRONOUNS[self.gender]:
            return PRONOUNS[self.gender][attr]
        forms = {
            "": self.name,
            "noun": self.noun,
            "home": self.home,
            "extra": self.extra,
            "the": f"the {self.noun}",
            "a": f"a {self.noun}",
            # A new figure: a child is a boy or a girl, others are introduced by their noun.
            "new": f"a {self.noun} named {self.name}",
            # A known friend, after "his" or "her".
            "friend": f"friend {self.name}" + ("" if self.group == "child" else f" the {self.noun}"),
            "full": self.name if self.group == "child" else f"{self.name} the {self.noun}",
            "child": "child" if self.group == "child" else f"little {self.noun}",
        }
        return forms[attr]


@dataclass
class Thing:
    """An object that one can carry: a look or a colour, and a noun."""

    noun: str
    adj: str

    def attr(self, attr: str) -> str:
        """`{o.attr}`."""
        return {"": self.noun, "full": f"{self.adj} {self.noun}", "adj": self.adj}[attr]


@dataclass
class Place:
    """Somewhere to be: `{p}`, `{p.in}`, `{p.to}`, `{p.sight}`."""

    the: str
    prep: str
    hides: list
    sights: list

    def attr(self, attr: str) -> str:
        """`{p.attr}`."""
        return {"": self.the, "in": f"{self.prep} {self.the}", "to": f"to {self.the}", "noun": self.the[4:]}[attr]


def other(gender: str) -> str:
    """The other gender: two figures who share scenes differ, so that pronouns are clear."""
    return "m" if gender == "f" else "f"


class Story:
    """Slots of one story, each filled on first use; `fixed` presets some of them."""

    def __init__(self, rng: random.Random, hero: str = "any", **fixed):
        self.rng = rng
        self.hero = hero
        self.family_weights = [5, 5, 4, 4, 1, 1]
        self.values: dict = dict(fixed)
        # Nouns that the plot uses itself, which other figures must not have.
        self.banned: set = set()

    def text(self, slot: str, attr: str) -> str:
        """The text of `{slot.attr}`; `{~list}` is a fresh pick."""
        if slot.startswith("~"):
            return self.rng.choice(lx.PICK[slot[1:]])
        value = self[slot]
        if isinstance(value, str):
            return value
        return value.attr(attr)

    def __getitem__(self, slot: str):
        if slot not in self.values:
            self.values[slot] = getattr(self, f"_make_{slot}")()
        return self.values[slot]

    def render(self, template: str) -> str:
        """One rendering with this story's slots."""
        return render(template, self)

    # People

    def _taken(self, attr: str) -> set:
        return self.banned | {getattr(v, attr) for v in self.values.values() if isinstance(v, Who)}

    def person(self, group: str, gender: str) -> Who:
        """A new figure of `group` whose name and noun are not taken."""
        rng = self.rng
        if group == "child":
            return Who(self.name_for("", gender, child=True), "girl" if gender == "f" else "boy", gender, "child", rng.choice(lx.CHILD_HOMES))
        taken = self._taken("noun")
        if group == "folk":
            pool = [(n, h) for n, h, g in lx.FOLK if g in ("", gender) and n not in taken]
        else:
            pool = [(n, h) for n, h, _ in lx.ANIMALS if n not in taken]
        noun, home = rng.choice(pool)
        return Who(self.name_for(noun, gender), noun, gender, group, home)

    def name_for(self, noun: str, gender: str, child: bool = False) -> str:
        """A free name that suits the noun; now and then an invented one."""
        rng = self.rng
        if rng.random() < 0.05:
            return "".join(rng.choices(lx.SYLLABLES, k=rng.randint(1, 2))).capitalize() + rng.choice(lx.NAME_ENDS[gender])
        if child or noun in lx.HUMAN_FOLK:
            names = lx.GIRLS if gender == "f" else lx.BOYS
        else:
            names = lx.CREATURE_NAMES[gender]
        return rng.choice([n for n in names if n not in self._taken("name")])

    def _make_A(self) -> Who:
        group = self.hero
        if group == "any":
            group = self.rng.choices(["child", "animal", "folk"], [50, 35, 15])[0]
        elif group == "young":
            group = self.rng.choices(["child", "animal"], [60, 40])[0]
        return self.person(group, self.rng.choice("fm"))

    def _make_B(self) -> Who:
        hero = self["A"]
        group = hero.group if hero.group != "folk" else self.rng.choice(["animal", "folk"])
        return self.person(group, other(hero.gender))

    def _make_C(self) -> Who:
        hero = self["A"]
        return self.person("animal" if hero.group == "folk" else hero.group, hero.gender)

    def _make_G(self) -> Who:
        noun, call, gender = self.rng.choices(lx.FAMILY, self.family_weights)[0]
        return Who(noun, noun, gender, "family", extra=call)

    def _make_J(self) -> Who:
        noun, does = self.rng.choice([j for j in lx.JOBS if j[0] != self["A"].noun])
        gender = "m" if noun in lx.MEN_ONLY else other(self["A"].gender)
        return Who(f"the {noun}", noun, gender, "job", extra=does)

    def _make_K(self) -> str:
        self["A"], self["B"]
        taken = {*self._taken("noun"), self.values.get("small"), "kitten", "puppy", "lamb"}
        return self.rng.choice([n for n, _, _ in lx.ANIMALS if n not in taken])

    def _make_small(self) -> str:
        """A small animal."""
        self["A"]
        small = "mouse rabbit frog snail sparrow hedgehog squirrel kitten duck turtle puppy mole".split()
        return self.rng.choice([n for n in small if n not in {*self._taken("noun"), self.values.get("K")}])

    # Things and places

    def _make_o(self) -> Thing:
        noun = self.rng.choice(lx.TOYS)
        adj = self.rng.choice(lx.COLOURS if self.rng.random() < 0.6 else lx.LOOKS)
        return Thing(noun, adj)

    def _make_o2(self) -> Thing:
        first = self["o"]
        noun = self.rng.choice([t for t in lx.TOYS if t != first.noun])
        return Thing(noun, self.rng.choice([c for c in lx.COLOURS if c != first.adj]))

    def _make_p(self) -> Place:
        return Place(*self.rng.choice(lx.PLACES))

    def _make_out(self) -> Place:
        """A place under the open sky."""
        return Place(*self.rng.choice(lx.PLACES[:12]))

    def _make_p2(self) -> Place:
        taken = {v.the for v in self.values.values() if isinstance(v, Place)}
        return Place(*self.rng.choice([p for p in lx.PLACES if p[0] not in taken]))

    def _make_hide(self) -> str:
        return self.rng.choice(self["p"].hides)

    def _make_hide2(self) -> str:
        return self.rng.choice([h for h in self["p"].hides if h != self["hide"]])

    def _make_sight(self) -> str:
        return self.rng.choice(self["p"].sights)

    def _make_osight(self) -> str:
        return self.rng.choice(self["out"].sights)

    def _make_f(self) -> str:
        self.values["food"], noun = self.rng.choice(lx.FOODS)
        return noun

    def _make_food(self) -> str:
        self["f"]
        return self.values["food"]

    def _make_col(self) -> str:
        return self.rng.choice(lx.COLOURS)

    def _make_num(self) -> str:
        return self.rng.choice("two three four five six seven".split())

    # Weather

    def _make_wadj(self) -> str:
        return self.rng.choice("sunny sunny warm warm windy rainy foggy".split())

    def _make_wx(self) -> str:
        return lx.WEATHER[self["wadj"]]

    def _make_time(self) -> str:
        return self.rng.choice(["morning", "morning", "day", "afternoon"])

    def _make_day(self) -> str:
        return self.rng.choice(["one {wadj} {time},", "one {wadj} {time},", "one {time},", "one {time},", "on a {wadj} {time},"])
