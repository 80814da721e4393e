"""Little texts with questions about them: who, where, what, which colour, how many, why."""

import random

from . import lexicon as lx
from .story import Story, Thing

# (text, [(question, answer, key)]): any right answer contains the key.
TEXTS = [
    ("[{A} lost {A.his} {o.full} {p.in}|{A} went {p.to} and lost {A.his} {o.full}]. {B} [looked for it and|came to help and] found it {hide}. {A} [was|felt] {~happy}.", [
        ("Who lost the {o}?", "{A} lost the {o}.", "{A}"), ("Who found [the {o}|it]?", "{B} found the {o}.", "{B}"),
        ("What did {A} lose?", "{A} lost {A.his} {o.full}.", "{o.full}"), ("Where was the {o}?|Where did {B} find the {o}?", "The {o} was {hide}.|{B} found the {o} {hide}.", "{hide}"),
        ("Where did {A} lose the {o}?", "{A} lost the {o} {p.in}.", "{p}"), ("How did {A} feel at the end?", "{A} was happy at the end.", "happy"),
        ("What did {B} find?", "{B} found the {o.full}.", "{o}")]),
    ("[One day|Yesterday|In the morning], {A} went {p.to}. {A.he} [saw a {K} there|met a {K}]. The {K} was [sitting|hiding] {hide}. {A} gave it some {f}.", [
        ("Where did {A} go?", "{A} went {p.to}.", "{p}"), ("[What|Which animal] did {A} see?", "{A} saw a {K}.", "{K}"), ("Who went {p.to}?", "{A} went {p.to}.", "{A}"),
        ("Where was the {K}?", "The {K} was {hide}.", "{hide}"), ("What did {A} give [the {K}|to the {K}]?", "{A} gave the {K} some {f}.", "{f}")]),
    ("{A} has a {c1} {o}. {B} has a {c2} {o}. [They play {p.in}.|They are good friends.|]", [
        ("What colour is {A}'s {o}?", "{A}'s {o} is {c1}.", "{c1}"), ("What colour is {B}'s {o}?", "{B}'s {o} is {c2}.", "{c2}"), ("Who has [the|a] {c1} {o}?", "{A} has the {c1} {o}.", "{A}"),
        ("Who has [the|a] {c2} {o}?", "{B} has the {c2} {o}.", "{B}")]),
    ("{A} put the {o} {hide}. [Then|After that] {A.he} went {p2.to}. {B} came and took the {o}. {B} put it {hide2}.", [
        ("Where is the {o} now?", "The {o} is {hide2} now.", "{hide2}"), ("Who took the {o}?", "{B} took the {o}.", "{B}"), ("Where did {A} put the {o}?", "{A} put the {o} {hide}.", "{hide}"),
        ("Where did {A} go?", "{A} went {p2.to}.", "{p2}"), ("What did {B} take?", "{B} took the {o}.", "{o}")]),
    ("{A} gave {B} a {o.full}. {B} gave {A} a {o2.full}. [Both were happy.|They thanked each other.|]", [
        ("What did {A} give [to {B}|{B}]?", "{A} gave {B} a {o.full}.", "{o.full}"), ("What did {B} give [to {A}|{A}]?", "{B} gave {A} a {o2.full}.", "{o2.full}"),
        ("Who has the {o} now?", "{B} has the {o} now.", "{B}"), ("Who has the {o2} now?", "{A} has the {o2} now.", "{A}"), ("Who gave away the {o2}?", "{B} gave away the {o2}.", "{B}")]),
    ("{A} was {mood} because {why}. {B} [came to {A}|saw {A}] and {did}.", [
        ("How did {A} feel?", "{A} was {mood}.", "{mood}"), ("Why was {A} {mood}?", "{A} was {mood} because {why}.", "{why}"), ("Who was {mood}?", "{A} was {mood}.", "{A}"),
        ("What did {B} do?", "{B} {did}.", "{did}"), ("Who came to {A}?|Who helped {A}?", "{B} [came to|helped] {A}.", "{B}")]),
    ("{J} lives next to {p}. [Every morning|Every day] {J.he} {J.extra}. {day} {A} came to {J} and brought {J.him} {food}.", [
        ("What did {A} bring?", "{A} brought {food}.", "{f}"), ("Who brought {food}?", "{A} brought {food}.", "{A}"), ("Where does {J} live?", "{J} lives next to {p}.", "{p}"),
        ("Who lives next to {p}?", "{J} lives next to {p}.", "{J}"), ("Who got {food}?", "{J} got {food}.", "{J}")]),
    ("A {K} and a {small} lived {p.in}. The {K} liked to {act1}. The {small} liked to {act2}. [They were good friends.|]", [
        ("What did the {K} like to do?", "The {K} liked to {act1}.", "{act1}"), ("What did the {small} like to do?", "The {small} liked to {act2}.", "{act2}"),
        ("Who liked to {act1}?", "The {K} liked to {act1}.", "{K}"), ("Who liked to {act2}?", "The {small} liked to {act2}.", "{small}"),
        ("Where did they live?", "They lived {p.in}.", "{p}")]),
    ("There was a {A.noun} named {A}. {A.he} lived {A.home} with {A.his} {G}. {A} loved to {act1}.", [
        ("What was the [name of the {A.noun}|{A.noun}'s name]?|What was the {A.noun} called?", "The {A.noun}'s name was {A}.|The {A.noun} was called {A}.", "{A}"), ("Where did {A} live?", "{A} lived {A.home}.", "{A.home}"),
        ("Who did {A} live with?", "{A} lived with {A.his} {G}.", "{G}"), ("What did {A} love to do?", "{A} loved to {act1}.", "{act1}"),
        ("Who was {A}?", "{A} was a {A.noun}.", "{A.noun}")]),
    ("{day} {A} made {food} for {B}. {A.he} carried it {p.to}. But on the way a {K} ate it all. [So {A} told {B} the story, and {B} laughed.|]", [
        ("What did {A} make?", "{A} made {food}.", "{f}"), ("Who ate [it|the {f}]?", "The {K} ate it.|A {K} ate it.", "{K}"), ("Who was the {f} for?", "The {f} was for {B}.", "{B}"),
        ("Who made {food}?", "{A} made {food}.", "{A}"), ("Where did {A} carry the {f}?", "{A} carried it {p.to}.", "{p}")]),
    ("{A}, {B} and {C} went {p.to}. {A} took a {o}, {B} took a {o2}, and {C} took some {f}.", [
        ("Who took the {o}?", "{A} took the {o}.", "{A}"), ("Who took the {o2}?", "{B} took the {o2}.", "{B}"), ("Who took the {f}?", "{C} took the {f}.", "{C}"),
        ("Where did they go?", "They went {p.to}.", "{p}"), ("What did {B} take?", "{B} took a {o2}.", "{o2}"), ("What did {C} take?", "{C} took some {f}.", "{f}"),
        ("What did {A} take?", "{A} took a {o}.", "{o}")]),
    ("It was a {wadj} {time}. {A} [wanted to|went out to] look for {A.his} {K}. It was not {hide}. It was {hide2}, and it was asleep.", [
        ("What was the weather like?", "It was {wadj}.", "{wadj}"), ("What was {A} looking for?", "{A} was looking for {A.his} {K}.", "{K}"), ("Where was the {K}?", "The {K} was {hide2}.", "{hide2}"),
        ("What was the {K} doing?", "The {K} was asleep.", "asleep"), ("Who was looking for the {K}?", "{A} was looking for the {K}.", "{A}")]),
]
MOODS = [("sad", ["{A.his} {o} was broken", "it rained all day", "nobody wanted to play", "{A.his} friend had gone away"]),
         ("happy", ["it was {A.his} birthday", "the sun was shining", "{A.he} got a new {o}", "school was over"]),
         ("scared", ["it was dark", "there was a big storm", "{A.he} heard a strange noise", "{A.he} was lost"]),
         ("tired", ["{A.he} had worked all day", "{A.he} had not slept", "{A.he} had run very far"]),
         ("angry", ["somebody had taken {A.his} {o}", "{A.he} had lost the game", "the {f} was all gone"])]
DID = "told {A.him} a joke|gave {A.him} a hug|brought {A.him} a {o2}|sang a song for {A.him}|sat down next to {A.him}|made some tea".split("|")
ACTS = "sing|dance|read|sleep|run|climb trees|tell jokes|swim|draw|pick flowers|play the drum|look at the stars|dig holes|cook soup|count clouds|jump in puddles".split("|")
ASKS = ["{T} {Q}", "{T} {Q}", "{T}\n\n{Q}", "Read this: {T} {Q}", "Here is a story: {T} {Q}", "{T} Question: {Q}", "Listen. {T} {Q}", "Read the story and answer the question. {T} {Q}"]


class Scene(Story):
    """Slots of a little text."""

    def _make_c1(self) -> str:
        return self.rng.choice(lx.COLOURS)

    def _make_c2(self) -> str:
        return self.rng.choice([c for c in lx.COLOURS if c != self["c1"]])

    def _make_o(self) -> Thing:
        return Thing(self.rng.choice(lx.TOYS), self.rng.choice(lx.COLOURS))

    def _make_mood(self) -> str:
        self.values["mood"], reasons = self.rng.choice(MOODS)
        self.values["why"] = self.rng.choice(reasons)
        return self.values["mood"]

    def _make_did(self) -> str:
        return self.rng.choice(DID)

    def _make_act1(self) -> str:
        return self.rng.choice(ACTS)

    def _make_act2(self) -> str:
        return self.rng.choice([a for a in ACTS if a != self["act1"]])


def reading(rng: random.Random) -> list[tuple[str, str, str]]:
    """One text with one to three questions: (user, assistant, key) turns; the first question carries the text."""
    template, questions = rng.choice(TEXTS)
    hero = "animal" if "{A.home}" in template and rng.random() < 0.6 else rng.choices(["child", "young"], [3, 1])[0]
    scene = Scene(rng, hero)
    text = scene.render(template)
    turns = []
    for question, answer, key in rng.sample(questions, rng.choices([1, 2, 3], [6, 2, 1])[0]):
        q = scene.render(f"[{question}]")
        if not turns:
            ask = rng.choice(ASKS)
            q = ask.replace("{T}", text).replace("{Q}", q)
        # The key is matched inside of a sentence, so it must not be capitalised like one.
        turns.append((q, scene.render(f"[{answer}]"), scene.render(f"x {key}")[2:]))
    return turns
