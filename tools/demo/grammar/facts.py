"""Facts about the world for the demo model: tables behind its questions and answers."""

OPPOSITES = [tuple(p.split("-")) for p in (
    "big-small hot-cold fast-slow up-down day-night happy-sad open-closed wet-dry hard-soft old-young light-dark high-low full-empty "
    "long-short loud-quiet left-right rich-poor strong-weak early-late clean-dirty good-bad near-far thick-thin inside-outside "
    "front-back first-last heavy-light sweet-sour win-lose begin-end push-pull give-take laugh-cry black-white summer-winter "
    "yes-no above-below awake-asleep brave-afraid easy-difficult true-false always-never narrow-wide top-bottom"
).split()]
# thing, its colour
COLOUR_OF = [tuple(p.split("-")) for p in (
    "the sky-blue|grass-green|snow-white|a banana-yellow|a lemon-yellow|a strawberry-red|a tomato-red|a carrot-orange|coal-black|milk-white|"
    "the sun-yellow|a leaf-green|chocolate-brown|a cherry-red|the sea-blue|a frog-green|a crow-black|a pig-pink|an elephant-grey|a fire engine-red|"
    "a cucumber-green|an orange-orange|a swan-white|a pumpkin-orange|a fox-red|a polar bear-white|a plum-purple|rice-white|a flamingo-pink"
).split("|")]
SOUND_OF = [tuple(p.split("-")) for p in (
    "cat-meow dog-woof cow-moo duck-quack sheep-baa pig-oink horse-neigh lion-roar frog-croak owl-hoot bee-buzz snake-hiss "
    "mouse-squeak goose-honk crow-caw hen-cluck wolf-howl bird-tweet turkey-gobble"
).split()]
YOUNG_OF = [tuple(p.split("-")) for p in (
    "cat-kitten dog-puppy cow-calf sheep-lamb horse-foal duck-duckling hen-chick bear-cub lion-cub goat-kid pig-piglet frog-tadpole "
    "goose-gosling swan-cygnet owl-owlet fox-cub deer-fawn kangaroo-joey"
).split()]
LEGS_OF = [("a dog", "four"), ("a cat", "four"), ("a bird", "two"), ("a spider", "eight"), ("a bee", "six"), ("an ant", "six"), ("a horse", "four"),
           ("a duck", "two"), ("a snake", "no"), ("a fish", "no"), ("a hen", "two"), ("a cow", "four"), ("a butterfly", "six"), ("a person", "two")]
HOME_OF = [("a bird", "in a nest"), ("a bee", "in a hive"), ("a fish", "in the water"), ("a rabbit", "in a burrow"), ("a horse", "in a stable"),
           ("a fox", "in a den"), ("a spider", "in a web"), ("a penguin", "in the cold south"), ("a camel", "in the desert"), ("a mole", "under the ground"),
           ("a monkey", "in the jungle"), ("a whale", "in the sea"), ("a frog", "near a pond"), ("a squirrel", "in a tree"), ("a pig", "on a farm"),
           ("a king", "in a castle"), ("a bear", "in a cave")]
EATS = [("a rabbit", "grass and carrots"), ("a cow", "grass"), ("a squirrel", "nuts"), ("a cat", "fish and mice"), ("a monkey", "fruit"), ("a horse", "hay"),
        ("a panda", "bamboo"), ("a bear", "berries, fish and honey"), ("a duck", "plants and small insects"), ("a mouse", "seeds and cheese"),
        ("a lion", "meat"), ("a frog", "flies"), ("a dog", "meat and bones"), ("a caterpillar", "leaves")]
USED_FOR = [("a key", "open a door"), ("a spoon", "eat soup"), ("a pencil", "write and draw"), ("an umbrella", "stay dry in the rain"), ("a lamp", "make light"),
            ("a broom", "sweep the floor"), ("a hammer", "hit nails"), ("a clock", "tell the time"), ("a bed", "sleep"), ("a cup", "drink"),
            ("a coat", "stay warm"), ("a map", "find the way"), ("scissors", "cut paper"), ("a kettle", "boil water"), ("a ladder", "climb up high"),
            ("soap", "wash your hands"), ("a bridge", "cross a river"), ("a boat", "travel on water"), ("a camera", "take pictures"), ("a bucket", "carry water"),
            ("a needle", "sew clothes"), ("a book", "read stories"), ("a telescope", "look at the stars"), ("a whistle", "make a loud sound")]
WORKS_IN = [("baker", "in a bakery"), ("teacher", "in a school"), ("farmer", "on a farm"), ("doctor", "in a hospital"), ("sailor", "on a ship"),
            ("librarian", "in a library"), ("cook", "in a kitchen"), ("gardener", "in a garden"), ("shopkeeper", "in a shop"), ("nurse", "in a hospital"),
            ("pilot", "in a plane"), ("miller", "in a mill")]
KINDS = {
    "an animal": "dog cat horse rabbit fox bear lion elephant mouse cow pig duck frog".split(),
    "a fruit": "apple banana pear plum cherry orange peach lemon strawberry".split(),
    "a vegetable": "carrot potato cabbage onion cucumber pea".split(),
    "a colour": "red blue green yellow pink purple orange".split(),
    "a toy": "ball doll kite drum puzzle".split(),
    "a tool": "hammer saw spade ladder broom".split(),
}
PLURAL_KIND = {"an animal": "animals", "a fruit": "fruits", "a vegetable": "vegetables", "a colour": "colours", "a toy": "toys", "a tool": "tools"}
SIZES = ["ant", "mouse", "rabbit", "cat", "dog", "sheep", "horse", "elephant", "whale"]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
SEASONS = "spring summer autumn winter".split()
RHYMES = ["cat hat mat bat", "tree bee sea key", "moon spoon soon noon", "star car far jar", "dog frog log fog", "house mouse", "light night bright kite",
          "cake lake snake", "king ring sing wing", "ball tall wall fall", "boat coat goat", "sun fun run bun", "fox box socks", "bear chair pear", "rain train plane"]
NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty").split()
SEASON_FACTS = [("spring", "flowers begin to bloom"), ("summer", "it is hot and the days are long"), ("autumn", "leaves turn red and fall"), ("winter", "it is cold and often snows")]
WHY = [("Why do we sleep?", "We sleep so that our body and mind can rest."), ("Why does it rain?", "It rains because water drops in the clouds become too heavy."),
       ("Why do birds have wings?", "Birds have wings so that they can fly."), ("Why do we wear coats in winter?", "We wear coats in winter because it is cold outside."),
       ("Why do plants need water?", "Plants need water to live and grow."), ("Why do we brush our teeth?", "We brush our teeth to keep them clean and healthy."),
       ("Why do bees visit flowers?", "Bees visit flowers to gather nectar for honey."), ("Why should we share?", "We should share because it makes others happy, and us too."),
       ("Why is it dark at night?", "It is dark at night because the sun is on the other side of the world."), ("Where does milk come from?", "Milk comes from cows."),
       ("Where do eggs come from?", "Eggs come from hens."), ("Where does honey come from?", "Honey comes from bees."), ("Where do apples grow?", "Apples grow on trees."),
       ("What is snow?", "Snow is frozen water that falls from the clouds."), ("What is the moon?", "The moon is a big ball of rock that goes around the earth."),
       ("What is the sun?", "The sun is a star that gives us light and warmth."), ("What is a rainbow?", "A rainbow is a band of colours in the sky. You see it when the sun shines through the rain."),
       ("What is a friend?", "A friend is someone who likes you and helps you."), ("What is bread made of?", "Bread is made of flour, water and a little salt."),
       ("What is ice?", "Ice is frozen water."), ("What do plants need to grow?", "Plants need water, light and good soil."),
       ("What is a library?", "A library is a place full of books that you can read."), ("What is a dragon?", "A dragon is a creature from fairy tales. It has wings and breathes fire.")]
UNKNOWN = ("What is the capital of France?|Who is the president?|Can you write a computer program?|What is the price of gold?|Who won the football game?|What is the weather today?|"
           "What time is it?|What is the population of China?|Explain quantum physics.|Who wrote Hamlet?|Translate this into German.|What is the speed of light?|"
           "Write a poem in French.|What is 3482 times 917?|How do I fix my car?|What is the news today?|What is the meaning of life?|How old is the universe?|"
           "Which phone should I buy?|What is the tallest mountain?|How do I cook rice?|Who invented the telephone?|What is machine learning?|Where is Paris?|"
           "Solve this equation for me.|What is the square root of two?|Can you book a flight for me?|What is the stock market doing?").split("|")
