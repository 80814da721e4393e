"""Short question-answer chats. Each maker returns turns of (user, assistant, key); any right answer contains the key."""

import random

from . import facts as fx
from . import lexicon as lx
from .engine import tidy
from .reading import reading
from .stories import PLOTS, hero_fits, hero_of, object_plots_for, plots_for, tell, theme
from .story import Story, Thing

Turn = tuple[str, str, str]


def an(noun: str) -> str:
    """The noun with its article."""
    return tidy("x a " + noun)[2:]


def cap(text: str) -> str:
    """The text with a capital first letter."""
    return text[0].upper() + text[1:]


def same(rng: random.Random, questions: list[str], answers: list[str], key: str = "") -> list[Turn]:
    """One turn: any of the questions, any of the answers."""
    return [(rng.choice(questions), rng.choice(answers), key)]


def greeting(rng: random.Random) -> list[Turn]:
    """Hello, how are you, thanks, good night."""
    kind = rng.randrange(5)
    if kind == 0:
        hello = rng.choice(["Hello", "Hi", "Hey", "Good morning", "Good evening", "Hello there", "Hi there"])
        back = hello if hello.startswith("Good") else rng.choice(["Hello", "Hi"])
        return [(hello + rng.choice(["!", ".", "", "!"]), back + rng.choice(["! How can I help you?", "! What can I do for you?", "! Would you like to hear a story?"]), "")]
    if kind == 1:
        return same(rng, ["How are you?", "How are you today?", "How do you feel?", "Are you well?", "Hello, how are you?"],
                    ["I am fine, thank you. How are you?", "I am very well, thank you!", "I am fine, thank you. Would you like to hear a story?"], "thank you")
    if kind == 2:
        return same(rng, ["Thank you!", "Thanks!", "Thank you very much.", "Thanks a lot!", "That was nice, thank you.", "Good job!"], ["You are welcome!", "You are very welcome!"], "welcome")
    if kind == 3:
        return same(rng, ["Goodbye!", "Bye!", "See you later!", "Bye bye!", "I have to go now."], ["Goodbye! Come back soon.", "Goodbye! It was nice to talk to you."], "Goodbye")
    return same(rng, ["Good night!", "Good night.", "I am going to bed."], ["Good night! Sleep well.", "Good night! Sweet dreams."], "Good night")


def identity(rng: random.Random) -> list[Turn]:
    """Who the model is and what it can do."""
    me = "I am a little language model, trained from scratch by the Millrace project."
    can = "I can tell little stories, answer questions about them, and do simple sums."
    return rng.choice([
        lambda: same(rng, ["Who are you?", "What are you?", "Tell me about yourself.", "Hello, who are you?", "Introduce yourself.", "And who are you?"], [me, f"{me} {can}"], "Millrace"),
        lambda: same(rng, ["What is your name?", "Do you have a name?", "What are you called?", "What should I call you?"],
                     ["I am the demo model of the Millrace project.", "I am called demo. I am the demo model of the Millrace project."], "Millrace"),
        lambda: same(rng, ["Who made you?", "Who trained you?", "Where do you come from?", "Who created you?"], ["The Millrace project trained me.", "I was trained by the Millrace project."], "Millrace"),
        lambda: same(rng, ["What can you do?", "How can you help me?", "What are you good at?", "What do you know?", "Help me."], [can, f"{can} Just ask me!"], "stories"),
        lambda: same(rng, ["Are you a person?", "Are you human?", "Are you a real person?", "Are you a robot?"], ["No, I am only a little language model."], "model"),
        lambda: same(rng, ["What is Millrace?", "Tell me about Millrace."], ["Millrace is a program that runs language models. I am its demo model."], "language models"),
        lambda: same(rng, ["How big are you?", "Are you big?", "Are you smart?"], ["I am very small. I only know little stories and simple questions."], "small"),
    ])()


def system_name(rng: random.Random) -> tuple[str, list[Turn]]:
    """A system message that gives the model a name, and a question about it."""
    name = rng.choice(lx.GIRLS + lx.BOYS + lx.CREATURE_NAMES["f"] + lx.CREATURE_NAMES["m"])
    system = rng.choice([f"Your name is {name}.", f"You are {name}, a friendly little model.", f"You are called {name}. Answer in one sentence."])
    question = rng.choice(["What is your name?", "Who are you?", "What are you called?", "Hello, who are you?"])
    return system, [(question, f"My name is {name}.", name)]


def sums(rng: random.Random) -> list[Turn]:
    """Some sums in a row, so that each fact is seen often."""
    return [turn for _ in range(rng.choices([1, 2, 3, 4], [5, 3, 2, 1])[0]) for turn in one_sum(rng)]


def one_sum(rng: random.Random) -> list[Turn]:
    """Addition, subtraction, multiplication with small numbers, in digits or words."""
    op = rng.choices("+-*", [6, 5, 2])[0]
    if op == "*":
        a, b = rng.randint(0, 5), rng.randint(0, 10)
        if rng.random() < 0.5:
            a, b = b, a
    else:
        top = rng.choice([10, 10, 20])
        a, b = rng.randint(0, top), rng.randint(0, top)
        if op == "-" and b > a:
            a, b = b, a
    c = {"+": a + b, "-": a - b, "*": a * b}[op]
    word = {"+": "plus", "-": "minus", "*": "times"}[op]
    if c <= 20 and rng.random() < 0.25:
        na, nb, nc = (fx.NUMBERS[x] for x in (a, b, c))
        return [(rng.choice([f"What is {na} {word} {nb}?", f"How much is {na} {word} {nb}?", f"{cap(na)} {word} {nb}?"]), f"{cap(na)} {word} {nb} is {nc}.", nc)]
    question = rng.choice([f"What is {a} {word} {b}?", f"What is {a} {op} {b}?", f"How much is {a} {word} {b}?", f"{a} {op} {b} = ?", f"Can you tell me what {a} {word} {b} is?",
                           f"Calculate {a} {op} {b}.", f"{a} {word} {b}?", f"{a}{op}{b}=?"])
    return [(question, f"{a} {word} {b} is {c}.", f"is {c}.")]


def word_problem(rng: random.Random) -> list[Turn]:
    """Somebody gets or gives away some things."""
    s = Story(rng, "child")
    thing = rng.choice("apples pears stones shells flowers books cookies marbles coins nuts eggs buttons pencils stars balloons".split())
    a, b = rng.randint(1, 12), rng.randint(1, 8)
    name, other = s["A"].name, s["B"].name
    he = s["A"].attr("he")
    if rng.random() < 0.5:
        what = rng.choice([f"{other} gives {s['A'].attr('him')} {b} more.", f"{cap(he)} finds {b} more.", f"{cap(he)} gets {b} more from {other}.", f"Then {he} buys {b} more."])
        total, left = a + b, "now"
    else:
        a, b = max(a, b) + 1, min(a, b)
        what = rng.choice([f"{cap(he)} gives {b} to {other}.", f"{cap(he)} loses {b}.", f"{other} takes {b} of them.", f"Then {he} gives away {b}."])
        total, left = a - b, "left"
    unit = thing if total != 1 else thing[:-1]
    question = rng.choice([f"How many {thing} does {name} have {left}?", f"How many {thing} are there {left}?" if left == "left" else f"How many {thing} does {name} have now?"])
    return [(f"{name} has {a} {thing if a != 1 else thing[:-1]}. {what} {question}", f"{name} has {total} {unit} {left}.", f" {total} ")]


def numbers(rng: random.Random) -> list[Turn]:
    """Comparing, counting, continuing a sequence."""
    kind = rng.randrange(4)
    if kind == 0:
        a, b = rng.sample(range(21), 2)
        big = rng.random() < 0.5
        c = max(a, b) if big else min(a, b)
        word = "bigger" if big else "smaller"
        return [(rng.choice([f"Which is {word}, {a} or {b}?", f"Which number is {word}, {a} or {b}?", f"What is {word}: {a} or {b}?"]), f"{c} is {word} than {a + b - c}.", f"{c} is")]
    if kind == 1:
        n = rng.randint(3, 10)
        words = rng.random() < 0.4
        seq = ", ".join(fx.NUMBERS[i] if words else str(i) for i in range(1, n + 1))
        to = fx.NUMBERS[n] if words else n
        return [(rng.choice([f"Count to {to}.", f"Can you count to {to}?", f"Please count from {'one' if words else 1} to {to}."]), f"{cap(seq)}.", cap(seq))]
    a = rng.randint(1, 19)
    if kind == 2:
        return [(rng.choice([f"What comes after {a}?", f"Which number comes after {a}?", f"What is the next number after {a}?"]), f"{a + 1} comes after {a}.", f"{a + 1} comes")]
    return [(rng.choice([f"What comes before {a}?", f"Which number comes before {a}?"]), f"{a - 1} comes before {a}.", f"{a - 1} comes")]


def opposite(rng: random.Random) -> list[Turn]:
    """The opposite of a word."""
    pair = rng.choice(fx.OPPOSITES)
    a, b = pair if rng.random() < 0.5 or pair[0] == "light" or pair[1] == "light" else pair[::-1]
    if a == "light":
        a, b = "dark", "light"
    return same(rng, [f"What is the opposite of {a}?", f"What is the opposite of the word {a}?", f"Tell me the opposite of {a}.", f"Opposite of {a}?", f"What's the opposite of {a}?",
                      f'What is the opposite of "{a}"?'], [f"The opposite of {a} is {b}."], f"is {b}")


def colour(rng: random.Random) -> list[Turn]:
    """The colour of a thing."""
    thing, c = rng.choice(fx.COLOUR_OF)
    return same(rng, [f"What colour is {thing}?", f"Which colour does {thing} have?", f"What is the colour of {thing}?", f"What color is {thing}?", f"Can you tell me what colour {thing} is?"],
                [f"{cap(thing)} is {c}."], c)


def animal(rng: random.Random) -> list[Turn]:
    """Sounds, young, legs, homes and food of animals; which is bigger."""
    kind = rng.randrange(6)
    if kind == 0:
        a, sound = rng.choice(fx.SOUND_OF)
        return same(rng, [f"What does {an(a)} say?", f"What sound does {an(a)} make?", f"Which sound does {an(a)} make?", f"What noise does {an(a)} make?"], [f"{cap(an(a))} says {sound}."], sound)
    if kind == 1:
        a, baby = rng.choice(fx.YOUNG_OF)
        return same(rng, [f"What is a baby {a} called?", f"What do you call a baby {a}?", f"What is a young {a} called?"], [f"A baby {a} is called {an(baby)}."], baby)
    if kind == 2:
        a, n = rng.choice(fx.LEGS_OF)
        return same(rng, [f"How many legs does {a} have?", f"How many legs has {a}?"], [f"{cap(a)} has {n} legs."], f"{n} legs")
    if kind == 3:
        a, home = rng.choice(fx.HOME_OF)
        return same(rng, [f"Where does {a} live?", f"Where can you find {a}?", f"Where is the home of {a}?"], [f"{cap(a)} lives {home}."], home)
    if kind == 4:
        a, food = rng.choice(fx.EATS)
        return same(rng, [f"What does {a} eat?", f"What does {a} like to eat?", f"What is the food of {a}?"], [f"{cap(a)} eats {food}."], food)
    i, j = rng.sample(range(len(fx.SIZES)), 2)
    big = rng.random() < 0.5
    a, b = (max(i, j), min(i, j)) if big else (min(i, j), max(i, j))
    word = "bigger" if big else "smaller"
    x, y = an(fx.SIZES[i]), an(fx.SIZES[j])
    return same(rng, [f"Which is {word}, {x} or {y}?", f"What is {word}, {x} or {y}?", f"Which animal is {word}: {x} or {y}?"],
                [f"{cap(an(fx.SIZES[a]))} is {word} than {an(fx.SIZES[b])}."], f"{cap(an(fx.SIZES[a]))} is")


def job(rng: random.Random) -> list[Turn]:
    """Jobs, places of work, and uses of things."""
    kind = rng.randrange(3)
    if kind == 0:
        noun, does = rng.choice(lx.JOBS)
        return same(rng, [f"What does {an(noun)} do?", f"What is the job of {an(noun)}?", f"Tell me what {an(noun)} does."], [f"{cap(an(noun))} {does}."], does)
    if kind == 1:
        noun, place = rng.choice(fx.WORKS_IN)
        return same(rng, [f"Where does {an(noun)} work?"], [f"{cap(an(noun))} works {place}."], place)
    thing, use = rng.choice(fx.USED_FOR)
    return same(rng, [f"What is {thing} used for?" if thing != "scissors" else "What are scissors used for?", f"What can you do with {thing}?", f"What do you use {thing} for?", f"Why do we need {thing}?"],
                [f"You use {thing} to {use}."], use)


def calendar(rng: random.Random) -> list[Turn]:
    """Days, months and seasons."""
    names, kind = rng.choice([(fx.DAYS, "day"), (fx.DAYS, "day"), (fx.MONTHS, "month"), (fx.SEASONS, "season")])
    i = rng.randrange(len(names))
    a, after, before = names[i], names[(i + 1) % len(names)], names[i - 1]
    if kind == "season" and rng.random() < 0.4:
        season, fact = rng.choice(fx.SEASON_FACTS)
        return same(rng, [f"What happens in {season}?", f"What is {season} like?"], [f"In {season}, {fact}."], fact)
    if rng.random() < 0.15:
        return same(rng, [f"How many {kind}s are there in a {'week' if kind == 'day' else 'year'}?"], [{"day": "There are seven days in a week.", "month": "There are twelve months in a year.", "season": "There are four seasons in a year."}[kind]],
                    {"day": "seven", "month": "twelve", "season": "four"}[kind])
    if rng.random() < 0.6:
        return same(rng, [f"What {kind} comes after {a}?", f"Which {kind} comes after {a}?", f"What comes after {a}?"], [f"{cap(after)} comes after {a}."], cap(after))
    return same(rng, [f"What {kind} comes before {a}?", f"Which {kind} comes before {a}?", f"What comes before {a}?"], [f"{cap(before)} comes before {a}."], cap(before))


def category(rng: random.Random) -> list[Turn]:
    """Is an apple a fruit? Name three animals."""
    kind = rng.choice(list(fx.KINDS))
    words = fx.KINDS[kind]
    if rng.random() < 0.4:
        n = rng.choice([2, 3, 4])
        some = rng.sample(words, n)
        listed = ", ".join(some[:-1]) + " and " + some[-1]
        many = fx.PLURAL_KIND[kind]
        return [(rng.choice([f"Name {fx.NUMBERS[n]} {many}.", f"Tell me {fx.NUMBERS[n]} {many}.", f"Can you name {fx.NUMBERS[n]} {many}?"]),
                 f"{cap(fx.NUMBERS[n])} {many} are {listed}.", f"{cap(fx.NUMBERS[n])} {many} are")]
    word = rng.choice(words)
    right = rng.random() < 0.5
    asked = kind if right else rng.choice([k for k in fx.KINDS if word not in fx.KINDS[k]])
    subject = word if kind == "a colour" else an(word)
    truth = f"Yes, {subject} is {kind}." if right else f"No, {subject} is {kind}."
    return [(f"Is {subject} {asked}?", truth, truth)]


def rhyme(rng: random.Random) -> list[Turn]:
    """What rhymes with cat?"""
    a, b = rng.sample(rng.choice(fx.RHYMES).split(), 2)
    return same(rng, [f"What rhymes with {a}?", f"Tell me a word that rhymes with {a}.", f"Which word rhymes with {a}?"], [f"{cap(b)} rhymes with {a}."], f"rhymes with {a}")


def why(rng: random.Random) -> list[Turn]:
    """A few questions about the world."""
    q, a = rng.choice(fx.WHY)
    return [(q, a, a)]


def unknown(rng: random.Random) -> list[Turn]:
    """Questions the model was not made for."""
    return same(rng, fx.UNKNOWN, ["I do not know that. I am only a little model.", "I am sorry, I do not know. I am only a little model.", "I have not learned that. I can tell you a story instead."], "I ")


def echo(rng: random.Random) -> list[Turn]:
    """Says hello to somebody, remembers the user's name, takes apart a greeting."""
    name = rng.choice(lx.GIRLS + lx.BOYS)
    if rng.random() < 0.35:
        return same(rng, [f"Say hello to {name}.", f"Please say hello to {name}!", f"Can you say hello to {name}?"], [f"Hello, {name}!"], name)
    hello = rng.choice([f"My name is {name}.", f"Hello, I am {name}.", f"Hi! My name is {name}.", f"I am {name}."])
    turns = [(hello, rng.choice([f"Nice to meet you, {name}!", f"Hello, {name}! Nice to meet you."]), name)]
    if rng.random() < 0.4:
        turns += small_talk(rng)
    if rng.random() < 0.7:
        turns.append((rng.choice(["What is my name?", "Do you know my name?", "Who am I?", "Do you remember my name?"]), f"Your name is {name}.", name))
    return turns


TELL = ["Tell me a story", "Please tell me a story", "Can you tell me a story", "Write a story", "Write a short story", "I want to hear a story", "Tell me a short story", "Make up a story", "Tell a story"]


def story(rng: random.Random) -> list[Turn]:
    """A story on request: about a hero, a name, an object or a theme."""
    ask = rng.choice(TELL)
    end = "?" if ask.startswith("Can") else "."
    kind = rng.choices(["any", "hero", "named", "object", "theme", "bed"], [2, 6, 4, 3, 2, 1])[0]
    if kind == "any":
        return [(ask + end, tell(rng), "")]
    if kind == "bed":
        return [(rng.choice(["Tell me a bedtime story.", "I cannot sleep. Tell me a story.", "Tell me something nice.", "Tell me a fairy tale."]), tell(rng), "")]
    if kind == "theme":
        plot = rng.choice([i for i in range(len(PLOTS)) if theme(i)])
        return [(f"{ask} about {theme(plot)}{end}", tell(rng, plot), "")]
    noun = rng.choice([n for n, _, _ in lx.ANIMALS] + [n for n, _, _ in lx.FOLK] + ["girl", "boy"] * 8)
    hero = hero_of(rng, noun)
    if kind == "hero":
        plot = rng.choice(plots_for(hero.group))
        about = rng.choice([an(noun), an(noun), f"a little {noun}" if hero.group != "folk" else an(noun)])
        return [(f"{ask} about {about}{end}", tell(rng, plot, A=hero), noun)]
    if kind == "named":
        plot = rng.choice(plots_for(hero.group))
        about = rng.choice([f"{an(noun)} named {hero.name}", f"{an(noun)} called {hero.name}", f"{hero.name} the {noun}" if hero.group != "child" else f"{an(noun)} named {hero.name}"])
        return [(f"{ask} about {about}{end}", tell(rng, plot, A=hero), hero.name)]
    plot = rng.choice(object_plots_for(hero.group))
    thing = Thing(rng.choice(lx.TOYS), rng.choice(lx.COLOURS))
    about = rng.choice([an(noun) + " and " + an(thing.attr("full")), an(thing.attr("full")), an(thing.attr("full"))])
    if noun not in about:
        hero = hero_of(rng, rng.choice(["girl", "boy"]))
        plot = plot if hero_fits(plot, "child") else rng.choice(object_plots_for("child"))
    return [(f"{ask} about {about}{end}", tell(rng, plot, A=hero, o=thing), thing.noun)]


SMALL = [(greeting, 3), (identity, 3), (sums, 18), (word_problem, 8), (numbers, 3), (opposite, 4), (colour, 3), (animal, 5), (job, 4), (calendar, 2), (category, 3), (rhyme, 1),
         (why, 2), (unknown, 1)]
KINDS = [*SMALL, (echo, 2), (reading, 22), (story, 7)]


def pick(rng: random.Random, table: list) -> list[Turn]:
    """Turns of a maker drawn from a weighted table."""
    makers, weights = zip(*table)
    return rng.choices(makers, weights)[0](rng)


def small_talk(rng: random.Random) -> list[Turn]:
    """One short question of any kind."""
    return pick(rng, SMALL)


SYSTEMS = ["You are a helpful little model.", "You are a helpful assistant.", "Answer the question.", "You are a friendly storyteller.", "Be kind and helpful.", "You are a helpful, honest assistant.", "Give short answers."]


def chat(rng: random.Random, boost: dict[str, float]) -> tuple[str | None, list[Turn]]:
    """A conversation: an optional system message and its turns; `boost` multiplies the weights of makers by name."""
    if rng.random() < 0.015:
        return system_name(rng)
    system = rng.choice(SYSTEMS) if rng.random() < 0.12 else None
    turns = pick(rng, [(maker, weight * boost.get(maker.__name__, 1)) for maker, weight in KINDS])
    while rng.random() < 0.22 and sum(len(q) + len(a) for q, a, _ in turns) < 1500:
        turns = turns + (small_talk(rng) if rng.random() < 0.8 else reading(rng))
    if len(turns) > 1 and rng.random() < 0.1:
        turns = turns + [("Thank you!", "You are welcome!", "welcome")]
    return system, turns
