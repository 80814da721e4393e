"""Words of the demo corpus: people, animals, places, things, food, weather and fresh-pick lists."""

GIRLS = (
    "Mia Lily Anna Emma Ella Zoe Ruby Nora Ivy Clara Lucy Sara Maya Rosa Amy Lena Kate Jane Molly Daisy Alice Eva "
    "Nina Hana Tara Leila Sophie Grace Holly Poppy Maria Yuki Priya Freya Hazel Olive Penny Wendy Fatima Greta"
).split()
BOYS = (
    "Tom Ben Max Sam Leo Jack Finn Noah Oscar Hugo Theo Adam Owen Luca Omar Ravi Kai Peter Daniel Billy Jacob Milo "
    "Felix Henry Arthur Toby Simon Paul Ali Diego Emil Otto Anton Victor George Harry Eddie Robin Ivan Karl"
).split()
CREATURE_NAMES = {
    "f": "Pippa Dot Bella Tilly Luna Fern Rosie Minnie Pearl Willow Clover Honey Nell Juniper Maple Coco Misty Peach".split(),
    "m": "Pip Rusty Bramble Bruno Hopper Nutmeg Barney Fudge Gus Wilbur Monty Ziggy Moss Pepper Biscuit Rolo Basil Chester".split(),
}

# noun, home, sound
ANIMALS = [
    ("fox", "in a den under an old oak tree", "bark"), ("rabbit", "in a burrow at the edge of the meadow", "squeak"),
    ("bear", "in a warm cave in the hills", "growl"), ("mouse", "in a tiny hole behind the barn", "squeak"),
    ("hedgehog", "under a hedge near the garden", "snuffle"), ("squirrel", "in a hollow tree", "chatter"),
    ("duck", "beside a quiet pond", "quack"), ("owl", "at the top of a tall pine tree", "hoot"),
    ("frog", "on a lily pad in the pond", "croak"), ("badger", "in a cosy home under the hill", "grunt"),
    ("otter", "on the bank of a clear river", "whistle"), ("kitten", "in a little house by the sea", "meow"),
    ("puppy", "in a farmhouse at the end of the lane", "bark"), ("lamb", "in a green field on the hill", "bleat"),
    ("pony", "in a stable next to the orchard", "neigh"), ("goat", "high up on a rocky mountain", "bleat"),
    ("pig", "in a muddy pen on the farm", "oink"), ("hen", "in a red coop on the farm", "cluck"),
    ("penguin", "on the ice near the cold sea", "squawk"), ("elephant", "near a wide river in the jungle", "trumpet"),
    ("lion", "on the warm golden plains", "roar"), ("tiger", "deep in the green jungle", "roar"),
    ("monkey", "in the tallest tree of the jungle", "chatter"), ("turtle", "on the shore of a blue lake", "hum"),
    ("beaver", "in a house of sticks on the river", "grunt"), ("deer", "in the quiet forest", "call"),
    ("mole", "in a tunnel under the garden", "squeak"), ("wolf", "in a deep dark forest", "howl"),
    ("sparrow", "in a nest under the roof of a barn", "chirp"), ("crow", "in the old bell tower", "caw"),
    ("donkey", "in a small stable near the market", "bray"), ("goose", "on a pond behind the mill", "honk"),
    ("snail", "under a stone in the garden", "hum"), ("bee", "in a golden hive in the orchard", "buzz"),
    ("crab", "between the rocks on the beach", "click"), ("cat", "in a bakery in the village", "meow"),
    ("dog", "in a cottage by the river", "bark"),
]
# noun, home, gender or ""
FOLK = [
    ("dragon", "in a cave high in the mountains", ""), ("robot", "in a workshop full of wheels and wires", ""),
    ("giant", "in a stone house beyond the hills", ""), ("wizard", "in a tall tower by the sea", "m"),
    ("princess", "in a white castle on a hill", "f"), ("prince", "in a castle with seven towers", "m"),
    ("queen", "in a castle beside a lake", "f"), ("king", "in a palace with golden doors", "m"),
    ("knight", "in a small castle near the forest", ""), ("fairy", "inside a bluebell in the woods", "f"),
    ("unicorn", "in a hidden valley", ""), ("pirate", "on a ship with patched sails", ""),
    ("elf", "in a house at the foot of a birch tree", ""), ("witch", "in a crooked house in the woods", "f"),
    ("troll", "under a stone bridge", ""), ("farmer", "on a small farm in the valley", ""),
    ("sailor", "in a cottage near the harbour", ""), ("fisherman", "in a hut on the beach", "m"),
]
HUMAN_FOLK = {"wizard", "princess", "prince", "queen", "king", "knight", "pirate", "witch", "farmer", "sailor", "fisherman"}
CHILD_HOMES = [
    "in a small village", "in a little house by the sea", "on a farm", "in a tall house in the city", "in a cottage near the woods",
    "in a quiet town", "on the edge of the forest", "in a house with a red door", "next to a big park", "in a valley between two hills",
    "above a bakery", "on a narrow street near the harbour",
]
FAMILY = [("mother", "Mum", "f"), ("father", "Dad", "m"), ("grandmother", "Grandma", "f"), ("grandfather", "Grandpa", "m"),
          ("aunt", "Auntie", "f"), ("uncle", "Uncle", "m")]
# noun, what the person does (third person)
JOBS = [
    ("baker", "bakes bread and cakes"), ("farmer", "grows food and looks after animals"), ("fisherman", "catches fish in the sea"),
    ("teacher", "helps children learn"), ("doctor", "helps sick people get well"), ("tailor", "makes and mends clothes"),
    ("gardener", "takes care of plants and flowers"), ("carpenter", "builds things from wood"), ("painter", "paints pictures"),
    ("clockmaker", "makes and repairs clocks"), ("librarian", "takes care of books"), ("shopkeeper", "sells things in a shop"),
    ("miller", "grinds grain into flour"), ("sailor", "works on a ship"), ("postman", "brings letters and parcels"),
    ("cook", "makes meals"), ("blacksmith", "makes things from iron"), ("shepherd", "looks after sheep"),
    ("nurse", "cares for people who are ill"), ("firefighter", "puts out fires"), ("pilot", "flies planes"),
    ("musician", "plays music"), ("beekeeper", "looks after bees and gathers honey"), ("potter", "makes cups and bowls from clay"),
]
MEN_ONLY = {"fisherman", "postman"}

# the place, preposition, hiding spots, sights
PLACES = [
    ("the forest", "in", ["under a fallen log", "behind a mossy rock", "in a pile of dry leaves", "inside a hollow tree", "under a fern"],
     ["tall trees", "soft green moss", "red mushrooms", "a path of pine needles"]),
    ("the garden", "in", ["under the rose bush", "behind the watering can", "between the cabbages", "under the wooden bench", "beside the gate"],
     ["yellow flowers", "butterflies", "rows of carrots", "a sleepy snail"]),
    ("the park", "in", ["under a bench", "behind the swings", "in the tall grass", "near the fountain", "under the slide"],
     ["a stone fountain", "children on swings", "ducks on the pond", "a man with balloons"]),
    ("the beach", "on", ["under a heap of seaweed", "behind a big rock", "in a small pool", "under an old boat", "half buried in the sand"],
     ["white waves", "tiny shells", "a sandcastle", "gulls in the sky"]),
    ("the farm", "on", ["behind the hay bales", "under the cart", "in the chicken coop", "beside the well", "behind the milk cans"],
     ["fat brown cows", "fluffy chicks", "a shiny tractor", "fields of wheat"]),
    ("the meadow", "in", ["in the long grass", "under a daisy patch", "behind a thorn bush", "beside an anthill", "under a flat stone"],
     ["blue butterflies", "wild flowers", "a family of rabbits", "busy bees"]),
    ("the river", "by", ["between two stones", "under the bridge", "among the reeds", "behind a willow tree", "on the muddy bank"],
     ["silver fish", "a wooden bridge", "green reeds", "smooth round stones"]),
    ("the hill", "on", ["behind a bush", "under a crooked tree", "in a rabbit hole", "next to a grey stone", "in the soft heather"],
     ["the whole valley", "sheep like white dots", "the far blue sea", "a windmill"]),
    ("the market", "at", ["under the fruit stall", "behind a barrel", "in an empty basket", "beside the flower cart", "under a striped tent"],
     ["baskets of apples", "a man selling cheese", "bright cloth", "a juggler"]),
    ("the lake", "by", ["under a rowing boat", "among the reeds", "behind the boathouse", "beneath the jetty", "beside an old net"],
     ["swans", "a small rowing boat", "the sky in the water", "dragonflies"]),
    ("the orchard", "in", ["under an apple tree", "behind a ladder", "in a wheelbarrow", "between two baskets", "under the fallen leaves"],
     ["ripe red apples", "wooden ladders", "hungry wasps", "rows of pear trees"]),
    ("the harbour", "at", ["behind a coil of rope", "under a fishing net", "in a wooden crate", "beside an anchor", "under the stone steps"],
     ["tall ships", "colourful boats", "hungry gulls", "barrels of fish"]),
    ("the barn", "in", ["under the hay", "behind a sack of corn", "in an old boot", "beside the ladder", "under a horse blanket"],
     ["golden hay", "a sleeping cat", "old tools", "swallows near the roof"]),
    ("the library", "in", ["behind a row of books", "under a reading chair", "on the lowest shelf", "beside the globe", "under the big desk"],
     ["shelves full of books", "a round window", "a map of the world", "soft chairs"]),
    ("the castle", "in", ["behind a curtain", "under the long table", "inside an iron pot", "at the foot of the stairs", "behind a suit of armour"],
     ["long halls", "shining windows", "a hundred candles", "old paintings"]),
    ("the school", "at", ["under a desk", "behind the piano", "in the coat room", "next to the bookshelf", "beside the big bin"],
     ["bright drawings", "a row of little coats", "a big blackboard", "paper stars"]),
]
COLOURS = "red blue green yellow white black brown pink purple orange silver golden grey".split()
LOOKS = "little old small beautiful tiny new lovely pretty".split()
# Syllables of invented names, so that the models learn to copy a name that they never saw.
SYLLABLES = "ba bo da do fi ga ka ki la lo lu ma mi mo na ni no pa pi ra ri ro sa si ta ti to va vi za zi zo".split()
NAME_ENDS = {"f": "na la ra ka lia nia sha".split(), "m": "bin dor kel mond rik ton vin".split()}
TOYS = (
    "ball|kite|teddy bear|doll|toy boat|drum|whistle|marble|spinning top|book|hat|scarf|umbrella|lantern|bell|button|key|toy train|"
    "basket|blanket|cup|flute|ribbon|mitten|bucket|coin|feather|ring|map|spoon|bag|paintbrush|clock|box"
).split("|")
# noun phrase with article, plain noun
FOODS = [("an apple pie", "apple pie"), ("a chocolate cake", "cake"), ("a loaf of bread", "bread"), ("a pot of soup", "soup"),
         ("a bowl of porridge", "porridge"), ("a honey cake", "honey cake"), ("a pan of stew", "stew"), ("a cherry tart", "tart"),
         ("a big cheese", "cheese"), ("a pumpkin pie", "pumpkin pie"), ("a dish of jelly", "jelly"), ("a jar of jam", "jam")]
# adjective, sentences
WEATHER = {
    "sunny": "[The sun was shining|The sky was bright and blue|The sun felt warm|There was not a cloud in the sky].",
    "windy": "[The wind was blowing hard|The wind whistled in the trees|Leaves danced in the wind|The wind pulled at everything].",
    "rainy": "[The rain fell on the roofs|Rain drummed on the windows|There were puddles everywhere|Grey clouds filled the sky].",
    "snowy": "[Snow covered the ground|Soft snow was falling|Everything was white with snow|The air was cold and the snow was deep].",
    "foggy": "[A thick fog lay over the land|The fog was so thick that the trees looked like ghosts|Everything was grey and quiet in the fog].",
    "warm": "[The air was warm|A soft breeze was blowing|Birds were singing|It was a lovely day].",
    "cold": "[The air was cold and clear|There was frost on the grass|It was so cold that the puddles were frozen].",
}
PICK = {
    "happy": "happy|very happy|so happy|glad|very glad|full of joy|delighted|as happy as could be".split("|"),
    "sad": "sad|very sad|so sad|upset|unhappy".split("|"),
    "nice": "kind|gentle|cheerful|friendly|clever|curious|polite|playful|quiet|lively|funny|honest|helpful".split("|"),
    "small": "little|small|young".split("|"),
    "said": "said|said|said|replied|answered".split("|"),
    "cried": "cried|called|shouted".split("|"),
    "asked": "asked|asked|asked|said".split("|"),
    "softly": "softly|quietly|gently|kindly|in a low voice|with a smile".split("|"),
    "hobby": ("to sing|to dance|to draw pictures|to climb trees|to read books|to look at the stars|to tell jokes|to pick flowers|to explore|"
              "to play outside|to listen to stories|to collect stones|to splash in puddles|to help others|to ask questions|to watch the clouds").split("|"),
    "went": "went|walked|ran|hurried|set off".split("|"),
    "soon": "soon|after a while,|before long,|a little later,|soon".split("|"),
    "suddenly": "suddenly|all at once|just then|at that moment".split("|"),
    "hug": "a big hug|a warm hug|a kiss on the cheek|a long hug".split("|"),
    "yummy": "delicious|warm and sweet|tasty|wonderful|very good".split("|"),
    "song": "a happy song|a silly song|an old song|a song about the sea|a song about the moon|a little tune".split("|"),
    "colour": COLOURS,
    "end": ["The end.", "", "", ""],
}
