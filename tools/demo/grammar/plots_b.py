"""Story skeletons, second part: courage, learning, making things."""

PLOTS = [
    ("being brave", {}, """
[Everyone knew that {A} was afraid of the dark.|There was one thing {A} did not like. It was the dark.|When the sun went down, {A} always hid under a blanket.] "[What if there is a monster?|The shadows look like monsters]," {A.he} said.
One night {A.his} {B.friend} did not come home. "{B} went {out.to} this afternoon, and now it is dark," said {A}'s {G}. {A}'s heart beat fast. {A.he} was afraid, but {A.he} was even more worried about {B}. "[I must find {B}|I have to help {B}]," said {A}. {A.he} took a [small|{col}] lantern and {~went} out into the night.

[The trees made strange sounds.|An owl called in the dark.|Every shadow looked like a giant.] {A} wanted to run home. But {A.he} held the lantern high and went on. "{B}! Where are you?" {A.he} {~cried}. Then {A.he} heard a weak voice. "[Here I am!|I am here!] [I hurt my foot and cannot walk.|I fell into a hole.]"
{A} helped {B} up. [Step by step|Arm in arm], they went home together. [The moon shone on the path.|The stars looked like little lamps.] {A} was surprised. The night was not so bad at all. It was quiet and beautiful.

"You are very brave," said {B}. "I was scared the whole time," said {A}. "[That is what being brave means|But you came anyway, and that is brave]," said {B}. {A} smiled. [Since that night, {A} was not afraid of the dark.|And that night {A} slept without a light for the first time.] {~end}"""),
    ("learning to swim", {"hero": "young", "weather": ["sunny", "warm"], "ban": ["duck", "frog", "otter", "turtle", "penguin", "beaver", "goose", "crab"]}, """
All the friends of {A} could swim, but {A} could not. {day} they all went {lake.to}. [{wx}|] Everybody jumped into the water, but {A} stayed on the grass. "[The water is too deep|The water is too cold]," said {A}. But really {A.he} was afraid.
{A.his} {B.friend} came and sat next to {A.him}. "I was afraid too," said {B}. "Do you want to try with me? [We can go slowly.|I will hold your hand.]" {A} was not sure. But then {A.he} said, "[All right.|I will try.]"

First {A} put one foot into the water. [It tickled.|It was cold!] Then {A.he} walked in up to {A.his} tummy. "[Very good!|You are doing well!]" said {B}. {A} tried to swim, but {A.he} went under and got water in {A.his} nose. {A} wanted to give up. "[Try again|One more time]," said {B} {~softly}. "[Nobody can do it the first time.|You are almost there.]"
{A} tried again the next day, and the day after that. And on the {num4} day, it worked! {A} moved {A.his} arms and legs and did not sink. "I am swimming! Look, I am swimming!" {~cried} {A}.

{B} clapped and cheered. [That evening {A} told {A.his} {G} all about it.|From then on, nobody could get {A} out of the water.] "[You can do anything if you keep trying|I knew that you could do it]," said {A.his} {G}. {~end}"""),
    ("building a {build}", {}, """
{day} {A} had an idea. "I want to build a {build}!" {A.he} said. {A.he} [got some wood and a hammer|looked for wood, nails and rope] and began to work. Bang, bang, bang! But [one side was too long|the nails were crooked], and the {build} fell down.
{A} did not give up. {A.he} tried again, but this time the wind blew it over. "[This is too hard for me|I will never finish it]," said {A}. {A.he} sat down and was {~sad}.

Then {A.his} {B.friend} came by. "[What are you making?|What is all this wood for?]" {~asked} {B}. "It should be a {build}, but it always falls down," said {A}. {B} walked around it and said, "[You need someone to hold the other side|Two can do what one cannot]. [Let me help you!|Shall we do it together?]"
So {B} held the wood, and {A} used the hammer. {J} saw them and brought [more nails|a pot of {col} paint|a long rope]. They worked [for {num} days|all week|until the sun went down].

At last the {build} was finished. It was [strong and straight|even better than {A} had hoped|the finest {build} in the whole valley]. "[We did it!|Look at it! It is perfect!]" {~cried} {A}. They sat down and ate {food} together. [And many friends came to see it.|"What shall we build tomorrow?" asked {B}, and they both laughed.|{~end}]"""),
    ("a garden", {"weather": ["sunny", "warm"]}, """
In spring, {J} gave {A} {num} [tiny|brown|little] seeds. "[What are these?|What can I do with them?]" {~asked} {A}. "[Put them in the ground and wait|Plant them, and you will see]," said {J}. {A} made {num} holes in the ground and put one seed in each hole. {A.he} gave them water. Then {A.he} sat down and waited.
Nothing happened. {A} waited one day. Nothing happened. {A} waited for a whole week. "[Maybe the seeds are asleep|They do not want to grow]," said {A}. {A.he} was {~sad} and wanted to dig them up.

"Do not dig them up," said {A.his} {B.friend}. "[Good things take time.|You must be patient.] [Give them water, and sing for them.|The sun and the rain will do their work.]" So {A} gave them water every morning and sang {~song}.
{day} {A} came outside and stopped. There were {num} small green leaves! "[They are growing!|Look, {B}! Look!]" {~cried} {A}. The plants grew and grew. By summer they were taller than {A}, and they had big {col} flowers. [Bees came from far away.|Everyone who passed by stopped to look.]

{A} gave the most beautiful flower to {J}. "Thank you for the seeds," said {A}. "[I learned how to wait.|I did not know that waiting could be so nice.]" {J} [smiled|laughed]. "[That is what every gardener must learn|And now you will have new seeds for next year]," {J.he} said. {~end}"""),
    ("the race", {"hero": "animal", "weather": ["sunny", "warm"], "ban": ["snail"]}, """
{A} could run very fast, and {A.he} [was proud of it|told everyone about it]. "[Nobody is faster than I am!|I am the fastest of all!]" {A.he} said every day. The other animals were tired of hearing it. {day} {A.his} {B.friend} said, "Let us have a race, from {p} to {p2}." {A} laughed out loud. "You? [You are so slow!|You cannot beat me!]" {A.he} said. But {B} only smiled.

"Ready, steady, go!" called the {K}. {A} ran off like the wind. {~soon} {A.he} looked back and could not see {B} anymore. "[I have plenty of time|This is too easy]," thought {A}. {A.he} lay down [under a tree|in the soft grass] and closed {A.his} eyes. [It was so warm and quiet that {A.he} fell asleep.|A moment later {A.he} was asleep.]
{B} walked on, step by step. {B.he} did not stop to rest, and {B.he} did not look back. {B} passed the sleeping {A.noun} very quietly.

When {A} woke up, the sun was low. {A.he} jumped up and ran as fast as {A.he} could. But it was too late. {B} was already there, and everybody was cheering. "[How did you do that?|How can this be?]" {~asked} {A}. "I just kept going," said {B}.
{A} was quiet for a while. Then {A.he} said, "[Well done, {B}. I should not have laughed at you.|You won, and I am sorry that I laughed.]" [After that, {A} never boasted again.|And they walked home side by side, not too fast and not too slow.] {~end}"""),
    ("a song", {"weather": ["sunny", "warm"]}, """
{A} loved to sing, but {A.he} only sang when nobody was near. "[My voice is too small|They will laugh at me]," {A.he} thought. {day} {A} sat {out.in} and sang {~song}. {A.he} thought that {A.he} was alone. But {A.his} {B.friend} was [behind a tree|close by] and heard every note.
"That was beautiful!" said {B}. {A} went red. "[Please do not tell anyone|You were not meant to hear it]," {A.he} said. "But tonight is the big feast," said {B}. "[Everybody would love to hear you.|You must sing for us!]" {A} shook {A.his} head. "No, no. I cannot."

That night everyone came {p2.to}. [There were lanterns in all colours.|A big fire was burning, and there was {food} for all.] {J} was going to play the [drum|flute|fiddle], but {J} had hurt {J.his} hand. "[There will be no music tonight|What is a feast without music?]" said the people, and they were {~sad}.
{A} looked at {B}. {B} [nodded|smiled and nodded]. {A} took a deep breath, stood up and began to sing. At first {A.his} voice was shaking. But then it grew strong and clear. Everyone was silent.

When the song was over, they clapped and {~cried}, "[More! More!|Sing it again!|Bravo!]" {A} sang until the moon was high. [Later {B} asked, "Were you afraid?" "Only at the start," said {A}, and {A.he} laughed.|"How do you feel?" asked {B} later. "Like a bird," said {A}, and {A.he} laughed.] {~end}"""),
    ("a {o} made by hand", {}, """
{A} wanted a {o}. But the {o} in the shop was too expensive. "[Then I will make one myself|I can make one with my own hands]," said {A}.
{A} did not know how to do it. So {A.he} {~went} to {J}. "[Can you show me how to make a {o}?|Please teach me how to make a {o}.]" {A.he} asked. "[It is not easy|It takes a long time]," said {J}, "but I will show you."

The first {o} was [crooked|much too big]. The second one [broke|was much too small]. {A} [was angry and wanted to stop|sighed and put down the tools]. "[I made a hundred bad ones before I made a good one|Every mistake is a little teacher]," said {J} {~softly}. So {A} tried a third time. {A.he} worked slowly and carefully. {A.he} painted it {col}.
When {A} was done, {J} held it up to the light. "[This is a very fine {o}|I could not have made it better myself]," said {J}.

{A} showed the {col} {o} to {A.his} {B.friend}. "[Where did you buy it?|It is wonderful! Who made it?]" {~asked} {B}. "I made it myself!" said {A}. {A.he} was very proud. "[Can you teach me?|Will you show me how?]" {~asked} {B}. "[Of course|Yes]," said {A}. "But do not worry if the first one is bad." {~end}"""),
    ("the first day of school", {"hero": "child"}, """
It was {A}'s first day of school. {A} had a new {col} bag and new shoes. But {A.he} did not want to go. "[What if nobody likes me?|What if I cannot find my room?]" {A.he} asked {A.his} {G}. "[You will see, it will be fun|Just be yourself]," said {A.his} {G}, and gave {A.him} {~hug}.
At school there were many children. [They were all loud.|They all seemed to know each other.] {A} stood alone by the [door|wall|window]. {A.he} held {A.his} bag very tight.

Then {B.new} came over. "[Do you want to sit next to me?|Are you new too?]" {B.he} asked. "I like your bag." {A} smiled a little. "Yes, I am new," {A.he} said. "[Me too!|I was so nervous this morning.]" said {B}. They sat down at the same table.

The teacher was nice. They [learned a song|painted a picture|counted to ten] and listened to a story about a {K}. In the break, {A} and {B} shared {food} and played with a {o.full}. The day was over before {A} knew it.
"[How was it?|Did you have a good day?]" asked {A.his} {G} at the gate. "[Great!|Wonderful!] I have a friend, and {B.his} name is {B}," said {A}. "[Can I go again tomorrow?|I cannot wait for tomorrow.]" {~end}"""),
    ("the mountain", {"weather": ["sunny", "warm"]}, """
From {A.his} window {A} could see a high mountain. "[What is at the top?|I want to stand at the top one day]," {A.he} often said. {day} {A} packed {A.his} bag. {A.he} took {food}, a rope and a {o.full}. {A.his} {B.friend} came too.
At first the path was easy. They saw [yellow flowers|goats|a little waterfall]. Then it became steep and [rocky|narrow]. "[My legs are tired|I cannot go on]," said {B}. "Let us rest and eat," said {A}. They sat on a flat stone and ate the {f}. [It was {~yummy}.|After that they felt strong again.]

Higher up they came to a wide crack in the rock. They could not jump over it. "[We have to go back|This is the end]," said {B}. But {A} had an idea. {A.he} tied the rope to a tree, and they climbed across, one after the other. {A}'s heart was beating fast.
At last they stood at the top. [They could see the whole world.|Far below, the houses looked like toys.|The clouds were under their feet.] "[It was worth it|Look how far we have come]," {~said} {A}. They left the {o.full} under a pile of stones, so that everyone would know that they had been there.

When they came home, it was dark. [They were tired and {~happy}.|They slept until noon the next day.] And now, when {A} looks at the mountain, {A.he} thinks of the little {o} at the top and smiles. {~end}"""),
    ("a bad day", {"hero": "young", "weather": ["sunny", "warm"]}, """
It was not a good day for {A}. First {A.he} [fell out of bed|spilled {A.his} milk|could not find {A.his} left shoe]. Then {A.he} [tore {A.his} coat|stepped into a puddle|bumped {A.his} head]. And then {A.his} {B.friend} had no time to play. "[Everything is going wrong!|This is the worst day ever!]" {~cried} {A}.
{A} sat down {p.in} and made an angry face. An old {K} came by. "[Why do you look so angry?|What a face!]" said the {K}. {A} told the {K} about everything that had gone wrong.

"[I see|Hm]," said the {K}. "I know a trick for bad days. Look around, and find {num3} good things." "There are no good things today," said {A}. "Just try," said the {K}.
{A} looked around. "[The sun is warm on my face|The air smells of flowers|The birds are singing]," {A.he} said at last. "That is one." Then {A} looked {hide}. "Oh! There is my {o.full}! I lost it last week! That is two." {A} began to smile. "And three?" {~asked} the {K}. {A} thought about it. "Three is that you came and talked to me," {A.he} said.

The {K} laughed. [And just then {B} came running and said, "I am done with my work. Let us play!"|In the evening {A} told {B} about the trick, and {B} liked it too.] It was not such a bad day after all. {~end}"""),
    ("the lazy {A.noun}", {"hero": "animal", "ban": ["penguin", "crab"], "trait": False}, """
{A} was very lazy. While the other animals worked, {A} slept in the sun. "Winter is coming," said {A.his} {B.friend}. "[You should gather food|You should get ready]." "[Winter is far away|There is plenty of time]," said {A}, and {A.he} closed {A.his} eyes again.
[All summer long|Day after day] {B} carried [nuts and berries|apples and corn] to {B.his} home. {A} [laughed at {B}|played and slept]. "[Why do you work so hard?|Come and lie in the grass with me!]" {A.he} said.

Then the leaves fell, and the cold wind came. One morning everything was white with snow. {A} was hungry. {A.he} looked for food {p.in}, but there was nothing left. {A.he} looked {hide}, but there was nothing there. {A} was cold and {~sad}.
At last {A} {~went} to {B}'s home and knocked on the door. "[Please help me|I am so hungry]," said {A}. "[I was foolish and lazy.|I should have listened to you.]" {B} looked at {A} for a long time. Then {B.he} opened the door. "[Come in|Sit down and eat]," said {B}. "[There is enough for two. But next year you must help me.|A friend is a friend, even a lazy one.]"

{A} never forgot it. When spring came, {A} was the first to get up and the last to stop. [They worked together, and they had fun too.|"Working with you is not so bad," said {A}.] {~end}"""),
    ("the moon", {}, """
One night {A} looked up at the moon. It was round and bright. "[I want to touch it|I would like to have the moon in my room]," said {A}. {A.he} [stood on a chair|climbed a tree|stood on a high wall], but the moon was too far away.
{A} asked {A.his} {B.friend} for help. "We need a long ladder," said {B}. They carried a ladder {out.to} and put it up. {A} climbed to the very top and stretched out {A.his} arms. But the moon was still too far away. Then they tried it with a {o.full}. That did not work at all, and they both laughed.

{A.his} {G} came out. "[What are you doing out here so late?|Why are you not in bed?]" {G.he} asked. "I want to have the moon," said {A}. {A.his} {G} smiled, filled a bowl with water and put it on the ground. "[Look into it|What do you see?]" {G.he} said. {A} looked. There was the moon, small and bright, in the water!
{A} put one finger in the bowl. The moon danced and shook. "[I touched it! I touched the moon!|It tickles the moon!]" {~cried} {A}.

"[The moon belongs to everyone, and we can all look at it|Some things we cannot keep, but we can still love them]," said {A.his} {G} {~softly}. {A} went to bed {~happy}, and the moon looked in at the window all night long. {~end}"""),
    ("a lost {A.noun}", {"hero": "young"}, """
{day} {A} went {p.to} with {A.his} {G}. [{wx}|] There was so much to see! {A} saw {sight}. {A.he} [stopped to look|ran to have a closer look]. When {A.he} turned around, {A.his} {G} was gone.
"[Where are you?|{G.extra}! {G.extra}!]" {~cried} {A}. Nobody answered. {A} was [scared|afraid]. {A.he} ran this way and that way, but everything looked strange. {A.he} began to cry.

{J} saw {A} and came over. "[Why are you crying?|Are you lost, little one?]" said {J} {~softly}. "I cannot find my {G}," said {A}. "[Then it is best to stay in one place|Do not run around anymore]," said {J}. "[Your {G} is looking for you too.|We will wait here together.] What is your name?" "My name is {A}." "And what is your {G} wearing?" "A {col} hat," said {A}.
They stood on a big stone, so that {A} could see far. {J} called {A}'s name as loud as {J.he} could. {~suddenly} {A} saw a {col} hat. "There!" {A.he} {~cried}.

{A.his} {G} ran to {A} and gave {A.him} {~hug}. "[I was so worried!|I looked for you everywhere!]" said {A.his} {G}. "Thank you," they said to {J}. On the way home, {A} held {A.his} {G}'s hand and did not let go. [And the next time, {A} stayed close.|{~end}]"""),
    ("the magic {o}", {}, """
{day} {A} found a {o.full} {hide} {p.in}. When {A.he} picked it up, it began to [glow|hum|shake]. "[Please do not drop me|Hello]," said the {o}. "I am a magic {o}. [I can grant three wishes.|You have three wishes.]"
{A} could not believe it. "I wish for {food}!" {A.he} said. Puff! There was {food}. It was {~yummy}. Then {A} said, "I wish that I could fly!" Puff! {A} rose into the air like a [feather|balloon]. {A.he} flew over {p2} and saw everything from above. It was wonderful.

But then the wind became strong. It blew {A} higher and higher, and {A.he} could not get down. "Help!" {~cried} {A}. Far below {A.he} saw {A.his} {B.friend}, who looked as small as an ant. {A} had only one wish left. {A.he} had wanted to wish for [a chest of gold|a castle]. But now {A.he} {~cried}, "I wish to be home!"
Puff! {A} was back on the ground, next to {B}. The {o} did not glow anymore. "[Where have you been?|What happened?]" {~asked} {B}. {A} told {B} the whole story.

"[Are you sad that the wishes are gone?|So you have no wishes left?]" said {B}. "[No|Not at all]," said {A}. "[I have a friend and a home. What else should I wish for?|I have everything that I need.]" And {A} put the {o} on a shelf, where it can still be seen today. {~end}"""),
    ("the bridge", {}, """
A river ran between the house of {A} and the house of {A.his} {B.friend}. There was an old bridge, and they met on it every day. But one night a storm came and took the bridge away. In the morning {A} stood on one side, and {B} stood on the other side. "[Now we can never play again!|How can I come to you?]" {~cried} {B}.
{A} tried to swim, but the water was too fast. {B} threw a rope, but it was too short. They were both {~sad}.

Then {A} {~went} to {J}. "[Can you help us?|We need a new bridge]," said {A}. {J} came and looked at the river. "[It is a lot of work|I cannot do it alone]," said {J}, "but if everyone helps, we can build a new one." So {A} asked all the neighbours. One brought wood, one brought stones, and a {K} brought a [bag of nails|long rope].
They worked for {num} days. {A} carried stones on this side, and {B} carried stones on the other side. At last they put the last piece in the middle.

{A} and {B} ran over the new bridge and met in the middle. They gave each other {~hug}. [There was a big feast with {food} for everyone.|"This bridge is even better than the old one," said {B}.] And they painted it {col}, so that everyone could see it from far away. {~end}"""),
]
