"""Story skeletons, third part: journeys, weather, animals, fairy-tale matters."""

PLOTS = [
    ("a snowman", {"hero": "child", "weather": ["snowy"]}, """
{day} {A} looked out of the window. {wx} "[Hooray! Snow!|Let us build a snowman!]" {~cried} {A}. {A.he} put on {A.his} coat and {A.his} {col} gloves and ran outside. {A.his} friend {B} came too.
They rolled a big ball, a middle ball and a small ball. They gave the snowman a carrot for a nose and {num} stones for buttons. "[Something is missing|He looks cold]," said {B}. So {A} put a {o.full} next to him. "[Now he is perfect|Now he has something to play with]," {A.he} said.

That night {A} heard a tap at the window. It was the snowman! "Come out and play," he said. {A} could not believe {A.his} eyes. They slid down the hill and caught snowflakes. The snowman told {A} about [the north|the clouds where he was born]. "[I will not be here for long|When the sun comes, I must go]," said the snowman, "[but I will come back every winter|but do not be sad]."
In the morning the sun was warm. The snowman was gone, and only the carrot and the {o} were left. {A} was {~sad}. "[Was it only a dream?|He is gone]," said {A} to {B}. Then {A} saw that the {o} was covered in [tiny ice flowers|frost that looked like a star].

"It was not a dream," {A.he} said {~softly}. "[See you next winter|Goodbye, my friend]." {~end}"""),
    ("the kite", {"weather": ["windy"], "o": "kite", "ban": ["crow", "sparrow", "owl", "bee"]}, """
{A} had a {o.full}. {A.he} had made it [alone|with {A.his} {G}]. {day} {A} {~went} {out.to} to fly it. {wx} The kite went up and up. "[Look how high it is!|Fly, kite, fly!]" {~cried} {A}.
{~suddenly} there was a snap. The string broke, and the kite flew away. {A} ran after it. {A.he} ran past {p2} and over a little bridge. But the kite was faster.

At last it came down in a very tall tree. {A} jumped, but {A.he} could not reach it. {A.he} threw a stick, but the stick got stuck in the tree too. {A} sat down under the tree and was {~sad}. "[I will never get it back|What can I do now?]" {A.he} thought.
Then a {K} came by. "[What is up there?|Why are you looking up?]" {~asked} the {K}. "My kite," said {A}. "It is stuck." "[I am not tall, but I am clever|I have an idea]," said the {K}. "Ask the crow. She can fly." The {K} called the crow, and the crow flew up and pulled at the string. Down came the stick, and down came the kite!

"Thank you both!" said {A}. {A.he} tied the kite to a new, strong string. [Then they flew it together, and the crow flew beside it.|{A} let the {K} hold the string, and the crow flew in circles around the kite.] {~end}"""),
    ("a rainy day", {"hero": "young", "weather": ["rainy"]}, """
{day} {A} wanted to go {out.to}. But then {A.he} looked outside. {wx} "[Oh no|How boring]," said {A}. "[What can we do now?|The whole day is ruined.]" Luckily, {A.his} {B.friend} was there too. They sat at the window and watched the drops.
"I know a game," said {B} after a while. "Let us pretend that this room is {p2}." {A} looked around. "[The chair is a mountain!|The table is our ship!]" {A.he} {~cried}. "And the carpet is the sea," said {B}.

They put a blanket over the table. They used a {o.full} as a [flag|treasure]. {B} was the captain, and {A} was the [cook|pirate]. "[A storm is coming! Hold on tight!|I see land!]" {~cried} {B}. They sailed to an island and fought a sea monster, which was really only a cushion. {A.his} {G} brought them {food}. "[Food for the brave sailors|The captain must be hungry]," said {A.his} {G}.
They played and played. {~suddenly} {A} looked up. It was quiet outside. The rain had stopped, and a rainbow stood over the roofs.

"[We can go out now|The sun is back]," said {B}. {A} looked at the ship, the sea and the treasure. "[Just one more trip|Let us find the treasure first]," {A.he} said, and they both laughed. {~end}"""),
    ("the lonely {A.noun}", {"hero": "folk"}, """
{A} had everything {A.he} needed, but {A.he} had no friends. [People ran away when they saw {A.him}.|Nobody ever came to visit.] "[They do not know me|If only I had someone to talk to]," said {A}, and {A.he} was {~sad}.
{day} a {small} knocked on the door. It was tired and wet. "[May I rest here?|Could I come in for a moment?]" it asked. "[Are you not afraid of me?|But are you not afraid?]" {~asked} {A}. "Why should I be afraid?" said the {small}. "[You have kind eyes.|I am only hungry and cold.]"

{A} gave the {small} {food} and a place by the fire. They talked all evening. The {small} told {A.him} about {p}, and {A} showed the {small} a {o.full}. {A} had not laughed so much in years. "[You should come {p.to} with me tomorrow|You must meet my friends]," said the {small}. "They will run away," said {A}. "Not if you bring {food}," said the {small}.
So they went {p.to} together. At first everyone hid. But the {small} called out, "[Come out! {A} is my friend.|Do not be afraid. {A} is nice!]" One after another, they came out. They ate, and {A} told them a funny story.

From then on, {A} was never alone. [Every Sunday {A.his} home was full of guests.|There was always someone at the door.] And the {small} always got the best seat by the fire. {~end}"""),
    ("a treasure map", {}, """
{day} {A} found an old map in [a bottle|the attic|an old book]. There was a big {col} cross on it. "[It is a treasure map!|There must be a treasure!]" {~cried} {A}. {A.he} showed it to {A.his} {B.friend}. "[Let us find it|Let us go and look]," said {B}.
The map said, "Start at {p2}. Walk {num} steps to the north." They did so. Then it said, "Go to the big stone and look to the left." They looked to the left and saw {p}. "[That is the place!|The cross must be there!]" said {B}.

They looked {hide2}. There was nothing but [an old shoe|dust|a surprised beetle]. Then they looked {hide}. {A} {~cried}, "Here is a box!" It was heavy and full of [dirt|rust]. They opened it together. There was no gold in it. There was a {o.full} and a letter. {A} read it aloud: "[The best treasure is a friend to share it with.|Dear finder, I hid this when I was small. Have fun with it!|Whoever finds this box shall never be bored again.]"
"[Who wrote it?|Who hid it here?]" {~asked} {B}. At that moment {J} came by and saw the box. {J} began to smile. "I wrote it," said {J}, "when I was as little as you are now."

They all sat down, and {J} told them [about the old days|how it had been hidden]. "[This is better than gold|What a day]," said {A}. {~end}"""),
    ("the sick {J.noun}", {}, """
Every day {J} [smiled at everyone|was the first to get up]. But {day1} {J} did not come. "[Where is {J}?|That is strange]," said {A}. {A.he} {~went} to {J.his} house and looked in. {J} was in bed. "I am ill," said {J} in a weak voice. "[I cannot work today.|Who will do my work now?]"
"[Do not worry|You must rest]," said {A}. "We will take care of it." {A} ran to {A.his} {B.friend}. "{J} is ill," {A.he} said. "[We have to help|Will you help me?]" "[Of course|Yes, let us start right away]," said {B}.

They made tea with honey and brought {J} {food}. Then they tried to do the work. It was not easy! [{A} made a big mess.|{B} dropped everything twice.|They did not know where anything was.] But they tried again, and the neighbours were patient. "[You are doing fine|What good helpers]," said an old man.
After {num} days {J} felt better. {J.he} got up and saw that everything had been done. [The floor was clean, and there were flowers on the table.|It was not perfect, but it was done with love.] {J} was so moved that {J.he} could hardly speak.

"[You two are the best friends one could have|I will never forget this]," said {J}. {J.he} gave them a {o.full}. [And they were so tired that they slept until noon.|"Next time you are ill, I will bring the tea," said {J}.] {~end}"""),
    ("the star", {"ban": ["owl"]}, """
One night {A} saw a star fall from the sky. It came down somewhere near {out}. {A} put on {A.his} shoes and {~went} {out.to}. There, in the grass, lay a little star. It was no bigger than a [plum|nut], and its light was very weak.
"[Are you hurt?|Can you talk?]" {~asked} {A}. "[I leaned out too far and fell|I slipped off a cloud]," said the star. "[My family is up there.|I want to go home.] If I am not back by morning, my light will go out."

{A} put the star in {A.his} [hat|basket] and carried it to {A.his} {B.friend}. "[How can we bring it back to the sky?|We must bring it home.]" {A.he} said. {B} thought hard. "We could throw it," said {B}. They tried, but it fell down again. "We could ask the owl," said {A}. The old owl lived at the top of a tall tree. "[I can fly high, but not that high|The sky is far]," said the owl. "[But the wind can.|Ask the night wind.]"
So they asked the night wind. "[Hold it up as high as you can|Give it to me]," whispered the wind. {A} climbed on a rock and held up the star. Whoosh! The wind took it and carried it up, up, up.

Soon there was one more light in the sky. It blinked {num3} times, as if to say thank you. [Every night {A} says good night to that star.|"Good night, little star," said {A} and {B}.] {~end}"""),
    ("a bird with a broken wing", {"hero": "child"}, """
{day} {A} found a little bird {p.in}. It could not fly, because its wing was hurt. "[Poor little bird|Do not be afraid]," said {A} {~softly}. {A.he} carried it home in {A.his} hands.
"[Can we keep it?|Look what I found!]" {A} said to {A.his} {G}. "[We can help it until it is well|A bird needs the sky, but it can stay until it is strong]," said {A.his} {G}. They put the bird in a box with a soft {col} cloth. {A} gave it water and seeds. Every day {A.he} sat next to the box and [told it stories|sang for it].

{A.his} friend {B} came to see it. "[What is its name?|Does it have a name?]" {~asked} {B}. "I call it {small2}," said {A}. After {num} weeks the bird began to hop around the room. It sat on {A}'s shoulder and pulled {A.his} hair. {A} laughed. {A.he} wished that the bird could stay forever.
But one morning the bird sat at the window and looked at the sky. {A} knew what it wanted. {A.he} was {~sad}, but {A.he} opened the window. "[Goodbye, {small2}|Fly, {small2}]," {A.he} said. The bird looked at {A} once more, and then it flew away over the trees.

[In spring {A} heard a song at the window. There was {small2}, with a nest in the apple tree!|The next morning a {col} feather lay on the window sill. "{small2} says thank you," said {A.his} {G}.] And {A} was {~happy}. {~end}"""),
    ("the cat and the {small}", {"ban": ["cat", "kitten", "puppy", "dog", "mouse"]}, """
{A} had a cat. The cat liked to sleep [by the stove|on a {col} cushion], and it did not like to work. {day} a {small} came into the house. "[Catch it!|Go and chase it away!]" said {A}. The cat opened one eye. "Later," it said, and slept on.
The {small} was hungry. It ate {bite} of the {f} that stood on the table. {A} was angry. "[If you do not chase the {small} away, you will get no milk|What good is a cat that sleeps all day?]" {A.he} said. So the cat got up and went to find the {small}. It looked {hide}, and there it was.

"[Please do not hurt me|Wait!]" said the {small}. "[I am alone, and it is cold outside.|I only wanted something to eat.] [If you let me stay, I will keep your feet warm.|I can tell you stories while you rest.]" The cat thought about it. It had never had a friend before. "[You may stay|All right]," said the cat, "but you must not steal. I will share my milk with you."
From that day, the cat and the {small} ate from one bowl and slept on one cushion. At first {A} [did not believe {A.his} eyes|shook {A.his} head]. "[A cat and a {small}! Who has ever seen that?|I sent you to chase it away!]" {A.he} said.

But nothing was stolen anymore, and the house was full of laughter. So {A} put a second bowl on the floor. {~end}"""),
    ("the proud {A.noun}", {"hero": "animal"}, """
{A} had the most beautiful [eyes|voice] of all, and {A.he} knew it. {A.he} looked at {A.himself} in the water and sang to {A.himself} all day. "[How beautiful I am!|Nobody is as lovely as I am!]" {A.he} said. When {B.new} wanted to play, {A} said, "[You are too dirty|You are too plain]. I do not play with you." So {B} went away and was {~sad}.
{day} {A} [leaned too far over the water|wanted to see {A.himself} even better], and splash! {A.he} fell into [deep black mud|the cold water]. "Help! I cannot get out!" {A.he} {~cried}. The others heard it, but they said, "[We are too plain to help you|You never play with us]."

Only {B} came running. {B} held out a long stick. "Hold on to it!" {B.he} {~cried}, and pulled with all {B.his} might. At last {A} was out of the water. {A.he} was cold and covered with mud, and {A.he} did not look beautiful at all.
"Why did you help me?" {~asked} {A} [quietly|in a small voice]. "I was not nice to you." "[Because you needed help|Everyone needs help sometimes]," said {B}. {A} felt ashamed. "[I am sorry|Please forgive me]," {A.he} said. "[You are more beautiful than I am, because you have a kind heart.|I looked at myself so much that I did not see how good you are.]"

They washed off the mud, and then they played {p.in} until evening. [{A} did not look into the water again.|And {A} got dirty again, but this time {A.he} only laughed.] {~end}"""),
    ("the clock that stopped", {}, """
In the middle of the village stood a tall tower with a big clock. Every hour it went ding, dong. {day} the clock was silent. "[What time is it?|Is it time for lunch?]" everybody asked. The baker burned the bread, and the children came to school too late. [Nobody knew what to do.|Everything was upside down.]
"[Somebody must go up and look|I will go up and see what is wrong]," said {A}. {A.he} climbed the stairs with {A.his} {B.friend}. There were a hundred steps. At the top it was dark and full of dust. They saw big wheels, small wheels and a heavy bell.

"[Look here!|I see something!]" {~cried} {B}. Between two wheels there was a {o.full}. And next to it sat a frightened little {small}. "[I only wanted to put it in my nest|I dropped it, and then everything stopped]," said the {small}. "[I am so sorry.|I did not want to break the clock.]"
"[Do not worry|It can happen to anyone]," said {A}. {A.he} pulled with all {A.his} might. The {o} came out with a pop. Tick, tock! The wheels began to turn again. Ding, dong! The bell was so loud that they all had to cover their ears.

{A} gave the {o} back to the {small} and found a better place for the nest. Down in the village everyone cheered. [The baker gave them {food}.|"Now we know what time it is," said the people. "It is time for a feast!"] {~end}"""),
    ("the night train", {"hero": "child", "far": True}, """
{A} was going to visit {A.his} {G}, who lived far away by the sea. It was the first time that {A} was on a train at night. {A.he} had a small bag, {food} and a {o.full}. The train went clack, clack, clack. Outside it was dark, and {A.he} could see the moon.
{A} could not sleep. On the other seat sat {B.new}. {B} looked {~sad}. "[Are you all right?|What is the matter?]" {~asked} {A}. "I miss my home," said {B}. "[I have never been away before.|It is so dark outside.]" "[I am a little scared too|I know how that feels]," said {A}. "[Would you like some {f}?|Shall we eat something?] [It helps.|It always makes me feel better.]"

They ate and talked. {A} showed {B} the {o}, and {B} told {A} a story about a {K} that could fly. {A} laughed so loud that an old man woke up. "[Tell it again|That is a good story]," said the old man, "I want to hear it too."
When the sun came up, they saw the sea. It was wide and blue. The train stopped, and on the platform stood {A.his} {G} and waved. {B}'s uncle was there as well. And he lived in the very same street!

"[We can play every day!|Then we will see each other tomorrow!]" {~cried} {A} and {B}. {A} gave {A.his} {G} {~hug}. "[You must be tired. Was it a long night?|Was it a long night?]" asked {A.his} {G}. "No," said {A}. "It was much too short." {~end}"""),
    ("the gift", {}, """
Tomorrow was {B}'s birthday, and {A} had no present. {A} and {B} were very good friends. "[What could I give {B.him}?|It has to be something special]," thought {A}. First {A.he} wanted to give {B.him} flowers. But a {K} came along and ate them all. Then {A} baked a cake. But it [was black on one side|fell on the floor]. {A} was {~sad}. "[Nothing works|Now I have nothing at all]," {A.he} said.
{A} had only one thing that was beautiful. It was {A.his} {o.full}. {A} loved it more than anything. {A.he} held it and looked at it for a long time. Then {A.he} put it in a box and tied a {col} ribbon around it.

On the birthday {A} {~went} to {B}'s house. "[This is for you|Happy birthday]," said {A}. {B} opened the box and was silent. "[But this is your own {o}!|This is the thing that you love most!]" said {B}. "You are worth more to me," said {A}.
{B} had to cry a little, but {B.he} was {~happy}. "I have an idea," {B.he} said. "We will share it. [In summer it lives with you, and in winter it lives with me|One week it is here, and one week it is at your house]. So we will never forget to visit each other."

And that is what they did. [They still do it today.|{~end}]"""),
    ("the smallest {A.noun}", {"hero": "animal", "ban": ["elephant"]}, """
{A} was the smallest {A.noun} of all. "[You are too small to help|You are too small to play with us]," said the others. {A} was {~sad}. "[I wish I were big and strong|Why am I so small?]" {A.he} said to {A.his} {G}. "[Small ones can do great things|One day you will see what you are good for]," said {A.his} {G}.
{day} the others were playing {p.in}. {~suddenly} there was a loud rumble, and a big rock rolled in front of their hiding place. They were caught behind it! "[Help! We cannot get out!|It is so dark in here!]" they cried. The rock was too heavy to move, and there was only a tiny gap at the side.

{A} heard them. "[I will help you|I am coming]," {A.he} {~cried}. The gap was too narrow for everyone else, but {A} was small enough. {A.he} crawled in and found the others. "[Do not be afraid|Stay together]," said {A}. "I felt the wind back there. There must be another way out." {A} went first, through all the narrow places, and dug and dug until there was a hole. Light came in! The others made the hole wider, and one after another they climbed out.
"You saved us!" they {~cried}. "[We were wrong about you|You are small, but you are the bravest of us all]." They carried {A} home on their shoulders.

"[So, do you still want to be big?|Do you still want to be big?]" {~asked} {A.his} {G} that night. "No," said {A}, and {A.he} yawned. "[I am just the right size|Small is fine]." {~end}"""),
    ("the dream", {"hero": "young"}, """
{A} was in bed, but {A.he} was not tired. "[Close your eyes and think of something nice|Sleep well]," said {A.his} {G}, and put out the light. {A} closed {A.his} eyes. {~suddenly} {A.his} bed began to move. It rose up and flew out of the window!
It flew over the roofs and over {p}. {A} could see {sight} far below. On a cloud stood a {K} with a {o.full}. "[Welcome to the land of dreams|There you are]," said the {K}. "[We have waited for you.|Come with me, the feast is about to start.]" There were mountains of [sugar|ice cream] and a lake of [milk|lemonade]. Everybody danced, and {A} danced too. 

Then {A} saw a little {small} that sat all alone. "Why do you not dance?" {~asked} {A}. "[I am afraid that they will step on me|I do not know how to dance]," said the {small}. {A} took it by the hand. "[Stand on my feet|I will show you]," {A.he} said. They turned and turned, and the {small} laughed out loud.
"It is almost morning," said the {K}. "[You have to go home now|Your bed is waiting]. But take this with you." And the {K} gave {A} the {o.full}.

When {A} woke up, {A.he} was in {A.his} own room, and the sun was shining. "[It was only a dream|What a strange dream]," {A.he} said. But then {A.he} looked under the pillow. There was the {o.full}! {~end}"""),
    ("the noise at night", {"hero": "young"}, """
One night {A} woke up. There was a strange noise. Scratch, scratch, scratch. "[Is it a monster?|Who is there?]" whispered {A}. Nobody answered. {A} pulled the blanket over {A.his} head. Scratch, scratch, scratch. There it was again!
{A} called {A.his} {G}. {A.his} {G} came with a light. "[What is the matter?|Why are you awake?]" {G.he} asked. "There is a monster [under my bed|behind the door|in the wardrobe]," said {A}. "[Let us look together|Shall we see who it is?]" said {A.his} {G}.

They walked slowly, on tiptoe. {A} held {A.his} {G}'s hand and a {o.full}, just in case. One, two, three! They looked, and there was no monster. There was a tiny {small}, and it was just as scared as {A} was. It had [a crumb of bread|a piece of cheese|an acorn] in its mouth.
"[Oh, it is only you!|You are not a monster at all!]" {~cried} {A}, and {A.he} began to laugh. "[It is cold outside, and it was looking for a warm place|It must be hungry]," said {A.his} {G}. They put some {f} on a little plate and made a bed from an old {col} sock.

{A} went back to bed. Scratch, scratch, scratch. But now {A} knew who it was, and {A.he} was not afraid anymore. "Good night, little {small}," {A.he} said, and {~soon} {A.he} was asleep. {~end}"""),
]
