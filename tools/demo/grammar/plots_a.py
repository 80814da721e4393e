"""Story skeletons, first part: things lost and found, helping, sharing."""

# Each plot: (theme, options, text). Options: hero group, weather, and so on (see stories.py).
PLOTS = [
    ("a lost {o}", {}, """
{A} had a {o.full}. It was [a gift from|made by|a present from] {A.his} {G}, and {A.he} [took it everywhere|loved it very much|never went out without it].
{day} {A} [took it {p.to}|went {p.to} with the {o}]. [{wx}|{A.he} saw {sight} there.|] {A.he} played [all day|for a long time|until {A.he} was tired]. But when it was time to go home, the {o} was gone!

"Oh no! [Where is my {o}?|I have lost my {o}!|My {o} is gone!]" {~cried} {A}. {A.he} looked {hide2}, but it was not there. {A.he} felt {~sad}.
{~soon} {A} met {A.his} {B.friend}. "[Why are you sad?|What is wrong?|Why are you crying?]" {~asked} {B}. "I lost my {o.full}," said {A}. "[Do not worry. We will find it together.|Let us look for it together.|I will help you look.]" {~said} {B}.

[They looked everywhere.|They looked high and low.|The two friends began to search.] At last {B} looked {hide}. "[Here it is!|I found it!|Look what I found!]" {B.he} {~cried}. [There was the {o.full}.|It was the {o.full}!]
{A} was {~happy}. "[Thank you, {B}!|Thank you! You are a true friend.|You are the best friend in the world!]" {A.he} said. [From that day on, {A} took good care of the {o}.|Then they played with the {o} together until the sun went down.|They walked home together, and {A} held the {o} very tight.]"""),
    ("a found {o}", {}, """
{day} {A} was walking {p.in}. [{wx}|] {~suddenly} {A.he} saw something {hide}. It was a {o.full}!
"[What a lovely {o}!|Someone must have lost it.|How pretty it is!]" said {A}. {A} wanted to keep it. But then {A.he} thought, "[Somebody may be sad without it.|It does not belong to me.|Someone must be looking for it.]"

So {A} asked [everyone {A.he} met|all the neighbours]. "Is this your {o}?" {A.he} asked {J}. "No, it is not mine," said {J}. "But I saw [someone crying|someone looking for something] near {p2}."
{A} {~went} {p2.to}. There sat {B.new}, and {B.he} looked {~sad}. "I lost my {o}," said {B}. "[What does it look like?|Can you tell me about it?]" {~asked} {A}. "It is a {o.full}," said {B}.

{A} smiled and held out the {o}. "[Is this the one?|Then this is yours!|Here it is!]" {B}'s eyes grew wide. "Yes! Thank you, thank you!" {B} {~cried}. {B.he} was {~happy}.
[From then on, {A} and {B} were the best of friends.|{A} went home without the {o}, but with a new friend, and that was much better.|"Being honest feels good," thought {A}, and {A.he} went home with a smile.]"""),
    ("helping a {small}", {}, """
{day} {A} {~went} {out.to}. [{wx}|{A.he} wanted to see {osight}.|] {~suddenly} {A.he} heard a small voice. "Help! Help!" it cried. {A} looked around and saw a [little|tiny] {small} that was [stuck under a heavy branch|caught in a bush full of thorns|sitting in a deep hole].

"[Do not be afraid|Stay calm|Wait]," said {A}. "I will help you." {A} [pulled and pulled|tried very hard], but {A.he} was not strong enough. So {A.he} {~went} to get {A.his} {B.friend}. Together they [tried again. One, two, three! The {small} was free.|worked until the {small} was free.]
"Thank you," said the {small}. "You are [so kind|very brave|good friends]. One day I will help you too." {A} [smiled|laughed]. "You are so small," {A.he} said. "How could you help us?"

[A week later|The next day|Some days later], {A} and {B} were lost in the [fog|dark woods]. They did not know the way home. {B} was [scared|afraid]. Then they heard a small voice. "[Follow me!|This way!|Come with me!]" It was the {small}! The {small} knew every path and led them home.
"[You were right|Now you have helped us]," said {A}. "[Even a small friend can be a big help|It is good to have a friend like you]." {~end}"""),
    ("sharing {food}", {}, """
{day} {A} [made|prepared] {food}. It smelled {~yummy}. "[I will eat it all by myself|This is all for me|I will not share it with anyone]," said {A}.
{~soon} there was a knock at the door. It was {A.his} {B.friend}. "[What smells so good?|Is that {food}?]" {~asked} {B}. "It is nothing," said {A}, and {A.he} [closed the door|hid the {f}]. {B} went away, and {B.he} was {~sad}.

{A} sat down at the table and began to eat. But [the house was very quiet|it was lonely at the table], and the {f} did not taste as good as {A.he} had hoped. "[It is no fun to eat alone|Something is missing]," thought {A}.
So {A} [took the {f}|put the {f} in a basket] and {~went} to {B}'s house. "I am sorry, {B}," {A.he} said. "[I was selfish.|I should have shared with you.|That was not kind of me.] Would you like some?"

{B} smiled. "[Yes, please!|I would love some!|Of course!]" They sat down together, and they [talked and laughed|told each other stories] until [the evening|the stars came out|every bit was gone]. {B} even had [a jug of milk|some sweet tea|a bottle of apple juice] to go with it.
"[It tastes much better now|Everything tastes better with a friend]," said {A}. [And from then on, {A.he} always shared.|{A} never forgot that day.|{~end}]"""),
    ("two friends and one {o}", {"hero": "young"}, """
{A} and {A.his} {B.friend} [did everything together|were always together|liked to play {p.in}]. {day} they found a {o.full} {hide}. "It is mine! I saw it first!" {~cried} {A}. "No, it is mine! I picked it up!" {~cried} {B}.
They pulled and they pushed. {A} pulled on one side, and {B} pulled on the other. [Then there was a loud crack.|Then, crack!] The {o} broke in two.

Now they were both {~sad}. "[Look what we did|Now nobody can have it]," said {B}. "I am sorry," said {A}. "I am sorry too," said {B}.
They took the pieces to {J}. {J} [looked at the {o}|shook {J.his} head] and said, "I can mend it, but you must promise me something. [You must share it.|You must take turns.|You must not fight over it again.]" "We promise," they said.

{~soon} the {o} was as good as new. {A} had it [on Monday|in the morning] and {B} had it [on Tuesday|in the afternoon]. [It was much more fun to share than to fight.|They never fought over it again.|And the two friends were {~happy}.] {~end}"""),
    ("a kind {J.noun}", {}, """
{A} wanted to give {A.his} {G} a present. {A.his} {G} had a birthday [soon|the next day|that week]. But {A} had no money at all.
{day} {A} went to see {J}. [{wx}|] "Please, may I work for you?" {~asked} {A}. "I would like to buy a {o.full}." {J} looked at {A} and smiled. "[All right|Very well|Of course]," said {J}. "You can [sweep the floor|carry the boxes|clean the windows] for me."

{A} worked hard [all day|the whole day|from noon until evening]. {A.his} arms hurt and {A.his} feet were tired, but {A.he} did not stop. When the work was done, {J} gave {A} {num} [silver|shiny] coins. "You did a good job," said {J}.
{A} {~went} to the market and bought the {o.full}. {A.he} [wrapped it in paper|tied a {col} ribbon around it|hid it under {A.his} coat].

On the birthday, {A.his} {G} opened the present. "[What a beautiful {o}!|A {o.full}! I love it!|Oh, how lovely!]" {G.he} said. "[How did you get it?|Where did you find it?]" {A} told {A.his} {G} about the work. {A.his} {G} gave {A} {~hug}. "[I am proud of you|You are a good {A.child}]," {G.he} said. {~end}"""),
    ("a wish", {"weather": ["sunny", "warm"]}, """
{day} {A} was sitting {out.in}. [{wx}|] {~suddenly} a tiny [star|fairy|golden bird] came down from the sky. "[Hello, {A}|Good day, {A}]," it said. "You [have a kind heart|helped an old woman yesterday|are always good to others], so I will give you one wish."
{A} thought and thought. [{A.he} could wish for a mountain of sweets.|{A.he} could wish for a golden crown.|{A.he} could wish for a new {o}.] But then {A.he} remembered {A.his} {B.friend}. {B} was ill and had been in bed for [a week|many days].

"I know what I want," said {A}. "I wish that {B} will be well again." "[That is a good wish. Are you sure?|Are you sure? You may have anything]," said the little voice. "Yes, I am sure," said {A}. There was a flash of light, and then {A} was alone again.
{A} {~went} to {B}'s house as fast as {A.he} could. The door opened, and there stood {B}. "[I feel well again!|Look, I am not ill anymore!]" {~cried} {B}. "[It is like magic!|I do not know what happened!]"

{A} laughed and gave {B} {~hug}. [They danced around the house.|They went out to play.|They played together until it was dark.] {A} had no {o} and no crown, but {A.he} was {~happy}. [The best wish is a wish for a friend.|{~end}]"""),
    ("a new neighbour", {"hero": "young"}, """
{day} somebody new came to live near {A}. It was {B.new}. {B} was [very shy|quiet] and did not talk to anyone. [{B} only looked out of the window.|{B} stayed inside all day.]
"[{B} does not like us|{B} is strange]," the others said. But {A} said, "[Maybe {B} is just lonely.|Maybe {B} is afraid. It is hard to be new.]"

So {A} took {food} and {~went} to {B}'s door. Knock, knock, knock. The door opened a little. "Hello," said {A}. "My name is {A}. [Welcome!|I brought you something.|Would you like to be my friend?]" {B} looked at the {f}. Then {B.he} smiled for the first time. "[Thank you|How kind of you]," said {B} {~softly}. "[Please come in.|Would you like to see my {o}?]"
{B} had a {o.full}, and {B.he} [could tell wonderful stories about it|let {A} play with it|told {A} where it came from]. They played all afternoon.

The next day {A} took {B} {p.to} and told the others, "This is my friend {B}." [Soon {B} was not shy anymore.|Everybody said hello, and {B} was not lonely anymore.] {B} was {~happy}, and so was {A}. [A kind word can open any door.|{~end}]"""),
    ("the big storm", {"weather": ["windy", "rainy"]}, """
{day} {A} looked out of the window. {wx} Then it began to thunder. Boom! Boom! {A} was safe and warm inside, but {A.he} was worried about {A.his} {B.friend}. {B}'s [roof was old|house was small and weak|home was close to the water].
{~suddenly} there was a knock at the door. It was {B}! {B.he} was wet from head to toe. "[The wind blew my roof away!|My house is full of water!]" said {B}. "[I have nowhere to go.|May I stay with you?]"

"Come in, come in!" said {A}. {A.he} gave {B} a [dry|warm|thick] blanket and {food}. {~soon} there was another knock. This time it was a {K}. "[I am so cold|I am wet and scared]," said the {K}. "[Is there room for me?|Please let me in.]" "[There is always room for a friend|Come in and sit by the fire]," said {A}.
The house was [small|full], but it was warm and bright. They sang {~song}, and nobody was afraid of the thunder anymore.

In the morning the storm was over. {A}, {B} and the {K} went to {B}'s house and [mended it|cleaned it] together. When the work was done, {B} said, "[Thank you for everything.|Now I know what good friends are.|A storm is not so bad when you have friends.]" {~end}"""),
    ("a baby {K}", {}, """
{day} {A} found a baby {K} {hide} {p.in}. [{wx}|] It was all alone, and it was [shaking|crying softly|hungry]. "[Where is your mother?|Are you lost, little one?]" {~asked} {A}. The baby {K} only looked at {A} with big eyes.
{A} gave it [some water|a bit of bread|some milk] and put it in a warm {col} scarf. "[I will find your mother|Do not be afraid, we will find your family]," said {A}.

First {A} asked {A.his} {B.friend}. "Have you seen a big {K}?" "No, I have not," said {B}. "But I will come with you." Then they asked {J}. "[Yes, I have!|Let me think.] There was a {K} {p2.in}," said {J}. "[It was looking for something.|It looked very worried.]"
{A} and {B} {~went} {p2.to}. And there was the mother {K}! When the baby saw her, it [jumped for joy|gave a happy cry|ran to her as fast as it could].

"Thank you for bringing my baby home," said the mother {K}. {A} and {B} were {~happy}. [After that day, the baby {K} often came to visit {A}.|They waved goodbye until the {K} and her baby were out of sight.|"It is good to be home," said {B}, and they went home too.] {~end}"""),
    ("the broken {o}", {"hero": "young"}, """
{A}'s {G} had a {o.full}. "You may look at it, but please be careful," said {A.his} {G}. {day} {A} was alone in the house. {A} wanted to [hold the {o}|play with the {o}] just once. {A.he} took it from the shelf. But it slipped out of {A.his} hands and fell on the floor. Now it was broken!

{A} was [afraid|scared]. {A.he} hid the {o} [under the bed|behind the cupboard|in a drawer]. In the evening {A.his} {G} asked, "[Have you seen my {o}?|Did you see my {o.full}?]" "No," said {A}. But {A.he} could not eat, and {A.he} could not sleep. [{A.his} tummy hurt.|The lie felt heavy like a stone.]
At last {A} got up and {~went} to {A.his} {G}. "I broke your {o}," {A.he} said, and {A.he} began to cry. "I am so sorry. I was afraid to tell you."

{A.his} {G} was quiet for a moment. Then {G.he} gave {A} {~hug}. "[I am sad about the {o}, but I am glad that you told me the truth|A {o} can be mended, but the truth is worth more]," {G.he} said. The next day they [glued|mended] the {o} together. [It had a small crack, but that did not matter.|It was not perfect, but they both liked it even more.]
And {A} [never told a lie again|always told the truth after that]. {~end}"""),
    ("the hungry {K}", {"weather": ["snowy", "cold"]}, """
It was winter. {wx} {A} was sitting [by the fire|at the window] with {food}. {~suddenly} {A.he} saw a {K} outside. The {K} was thin and looked {~sad}.
"[What are you looking for?|Are you all right?]" {A} {~asked} through the window. "I am looking for food," said the {K}. "[But everything is under the snow.|I have not eaten for two days.]"

{A} looked at the {f}. There was not very much. But {A.he} opened the door and said, "[Come in and eat with me.|You can have half of it.|There is enough for both of us.]" The {K} ate and ate and was {~happy}. "[I will never forget this|You have a good heart]," said the {K}.
Then spring came, and the sun melted the snow. One morning {A} [was digging {out.in}|was working {out.in}], and {A.his} {o.full} fell into [a deep hole|a dark crack between the rocks]. {A} could not reach it. "[Oh dear|Oh no]," said {A}. "[It is gone forever.|How will I ever get it back?]"

"Let me help you," said a voice. It was the {K}! The {K} climbed down and came back with the {o.full}. "[You helped me, and now I help you|Now we have helped each other]," said the {K}. [They were friends for the rest of their lives.|From then on they ate together every Sunday.|{~end}]"""),
    ("a letter", {}, """
{day} {J} brought {A} a letter. It said, "[Come {p.to} at noon.|Please come {p.to} today.|Meet me {p.in} before sunset.] There is a surprise for you." There was no name on it. "[Who wrote this?|Who could it be from?]" {~asked} {A}. {J} did not know.
{A} [put on {A.his} best hat|was very curious] and {~went} {p.to}. On the way {A.he} met a {K}. "Did you write me a letter?" {~asked} {A}. "No," said the {K}. "[I cannot write.|I only know how to draw.]" Then {A} met an old woman. "Did you write me a letter?" "No, my dear," said the old woman, "but it is a fine day for a surprise."

When {A} came {p.to}, it was very quiet. {A} looked {hide}, but nobody was there. {A.he} was a little sad. "[Maybe it was a joke|Maybe I came too late]," {A.he} thought.
"Surprise!" {~cried} a voice. Out jumped {A.his} {B.friend} with {food} in {B.his} arms. Behind {B} came all their friends. "Happy birthday, {A}!" they shouted.

{A} had [forgotten {A.his} own birthday|been so busy that {A.he} had not thought of it]! They [ate and danced|sang {~song}|played games] until the moon came up. "[This was the best birthday ever|Thank you for the letter]," said {A} to {B}. {~end}"""),
    ("the old {J.noun}", {"hero": "young", "weather": ["sunny", "warm"]}, """
{J} was old and [lived alone|could not see well|walked with a stick]. {A} passed {J.his} house every day. {day} {A} saw that {J} was [sitting on the steps|standing at the gate]. {J.he} looked {~sad}.
"What is the matter?" {~asked} {A}. "[My garden is full of weeds, and my back hurts|My hands are too weak to carry water|The wood is all gone, and I cannot chop more]," said {J}. "[I can help you|Let me help]," said {A}.

{A} worked in the sun [all afternoon|until {A.he} was hot and tired]. {~soon} {A.his} {B.friend} came by. "[What are you doing? Come and play!|Come and play with me!]" said {B}. "I cannot play now," said {A}. "I am helping {J}." {B} thought for a moment. "Then I will help too," {B.he} said. With two of them, the work was done in no time.
{J} came out with {food}. "This is for you," said {J}. "[You have made an old heart young again.|I do not know how to thank you.]" Then {J} gave them a {o.full}. "I had it when I was little. Now I want you to have it."

[After that, {A} and {B} came to see {J} every week.|From then on {J} was never lonely, for {A} and {B} came to visit often.] And {J} told them the best stories in the world. {~end}"""),
    ("a thief {p.in}", {}, """
Something strange was happening {p.in}. [Every night something was missing.|Things began to go missing.] First it was a spoon. Then it was a {o.full}. "[There must be a thief!|Somebody is taking our things!]" said {A}. {A} was [angry|worried], because the {o} was {A.hiss}.
"Let us stay awake tonight and watch," said {A.his} {B.friend}. So they hid {hide} and waited. [The moon came up.|It was dark and very still.] {~suddenly} they heard a noise. Step, step, step. Something small was moving in the dark!

"Stop!" {~cried} {A}, and {B} lit a lantern. There stood a little {small} with [a cup|a spoon|a sock] in its [arms|mouth]. The {small} began to cry. "Please do not be angry," it said. "[I only wanted to make my nest pretty for my babies.|I was building a home for the winter.|I wanted to have nice things like you.]"
{A} was not angry anymore. "[You should have asked us|It is wrong to take things without asking]," {A.he} said {~softly}. "[If you had asked, we would have helped you.|We would have given you something.]"

The {small} brought everything back, and it said sorry. {A} got the {o.full} back. Then {A} and {B} gave the {small} [a soft blanket|an old basket|some warm wool] for its home. [The {small} never took anything again.|And nothing was ever missing again.] {~end}"""),
]
