"""The vocabularies that several intents share: names of things, people and places, amounts, dates."""

from __future__ import annotations

from headgate.bench.cache.slots import (
    clock_times,
    counts,
    dates,
    days_of_year,
    identifiers,
    money,
    percentages,
    quantities,
    temperatures,
    words,
)

CITIES = words(
    "cities",
    "entity",
    """
    New York|NYC|New York City; Los Angeles|LA; San Francisco|SF; London; Paris; Rome; Oslo; Cairo; Madrid; Lisbon;
    Berlin; Vienna; Prague; Warsaw; Athens; Dublin; Helsinki; Stockholm; Copenhagen; Brussels; Amsterdam; Zurich;
    Geneva; Munich; Milan; Naples; Venice; Barcelona; Seville; Porto; Istanbul; Dubai; Mumbai|Bombay; Delhi; Bangkok;
    Singapore; Tokyo; Osaka; Seoul; Beijing; Shanghai; Hong Kong; Sydney; Melbourne; Auckland; Toronto; Montreal;
    Vancouver; Chicago; Boston; Seattle; Denver; Miami; Dallas; Houston; Atlanta; Lima; Bogota; Santiago; Nairobi;
    Cape Town; Marrakesh; Edinburgh; Manchester; Glasgow; Budapest; Krakow; Hanoi; Manila; Jakarta
    """,
)
COUNTRIES = words(
    "countries",
    "entity",
    """
    France; Spain; Italy; Germany; Portugal; Greece; Norway; Sweden; Finland; Denmark; Poland; Hungary; Austria;
    Switzerland; Belgium; Ireland; Iceland; Croatia; Romania; Bulgaria; Turkey|Türkiye; Egypt; Morocco; Kenya;
    Nigeria; Ghana; Ethiopia; South Africa; India; China; Japan; South Korea; Vietnam; Thailand; Indonesia; Malaysia;
    Australia; New Zealand; Canada; Mexico; Brazil; Argentina; Chile; Peru; Colombia; Cuba; Jamaica; Israel; Jordan;
    Pakistan; Nepal; Sri Lanka; Cambodia; Mongolia; Ukraine; Estonia; Latvia; Lithuania; Tunisia; Ecuador
    """,
)
SERVICES = words(
    "services",
    "entity",
    """
    Gmail|Google Mail; Outlook; Netflix; Spotify; Dropbox; Slack; Zoom; GitHub; PayPal; Instagram|Insta; Facebook;
    LinkedIn; WordPress; Photoshop; Steam; Uber; Airbnb; eBay; Pinterest; Reddit; Discord; Trello; Notion; Evernote;
    Skype; Twitch; Etsy; Salesforce; Jira; OneDrive; Telegram; WhatsApp; Signal; Mailchimp; Asana; Shopify; Quora;
    Duolingo; Strava
    """,
)
DEVICES = words(
    "devices",
    "entity",
    """
    iPhone; Android phone|Android; Windows laptop; MacBook; iPad; Chromebook; Linux desktop; Kindle; smart TV; Xbox;
    PlayStation; Galaxy tablet; Pixel phone|Google Pixel; Surface tablet; work computer|work PC; iMac; Fire tablet;
    Steam Deck; Raspberry Pi; ThinkPad
    """,
)
FEATURES = words(
    "features",
    "entity",
    """
    dark mode; location tracking; push notifications; autoplay; Bluetooth; airplane mode|flight mode; read receipts;
    automatic updates|auto updates; spell check; subtitles|captions; night light; battery saver|power saving mode;
    the pop-up blocker; cloud backup; the voice assistant; mobile data|cellular data;
    two-factor authentication|2FA|two-step verification; personalised ads|ad personalisation; Wi-Fi calling;
    keyboard sounds; parental controls; data roaming|roaming; screen rotation|auto-rotate; fingerprint unlock
    """,
)
COLLEAGUES = words(
    "colleagues",
    "person",
    """
    Priya; Maria; Tom; Ahmed; Sofia; Lukas; Chen; Fatima; Oliver; Emma; Diego; Yuki; Anna; Peter; Nadia; Samuel;
    Grace; Ivan; Leila; Marcus; Hannah; Kofi; Elena; Victor; Ruth; Jonas; Mei; Carlos; Ingrid; Tariq; Chloe; Ben;
    Aisha; Felix; Rosa; Henry
    """,
)
FIGURES = words(
    "figures",
    "person",
    """
    Marie Curie|Madame Curie; Albert Einstein|Einstein; Isaac Newton|Newton; Charles Darwin|Darwin; Ada Lovelace;
    Alan Turing; Nikola Tesla; Galileo Galilei|Galileo; Leonardo da Vinci|da Vinci; Wolfgang Amadeus Mozart|Mozart;
    Frida Kahlo; Ludwig van Beethoven|Beethoven; William Shakespeare|Shakespeare; Jane Austen;
    Charles Dickens|Dickens; Mark Twain; Vincent van Gogh|van Gogh; Pablo Picasso|Picasso; Claude Monet|Monet;
    Nelson Mandela|Mandela; Abraham Lincoln; Mahatma Gandhi|Gandhi; Winston Churchill|Churchill;
    Napoleon Bonaparte|Napoleon; Rosa Parks; Amelia Earhart; Florence Nightingale; Sigmund Freud|Freud;
    Louis Pasteur|Pasteur; Johannes Kepler|Kepler; Emily Dickinson; Agatha Christie
    """,
)
LANGUAGES = words(
    "languages",
    "language",
    """
    English; French; Spanish; German; Italian; Portuguese; Dutch; Swedish; Norwegian; Danish; Finnish; Polish; Czech;
    Hungarian; Greek; Turkish; Russian; Ukrainian; Arabic; Hebrew; Hindi; Bengali; Urdu; Chinese|Mandarin Chinese;
    Japanese; Korean; Vietnamese; Thai; Indonesian; Swahili; Romanian; Welsh
    """,
)
CODE_LANGUAGES = words(
    "code languages",
    "language",
    """
    Python|Python 3; Java; JavaScript|JS; TypeScript; Go|Golang; Rust; C++|cpp; C#|C sharp; Ruby; PHP; Swift; Kotlin;
    Scala; Perl; Haskell; Lua; Julia; Elixir; Dart; R; MATLAB; Clojure; Fortran; Erlang
    """,
)
FILE_FORMATS = words(
    "file formats",
    "format",
    """
    CSV; JSON; XML; YAML; TOML; Excel|XLSX; Parquet; PDF; HTML; Markdown; plain text; LaTeX; Word|DOCX; EPUB; SQLite;
    TSV
    """,
)
INGREDIENTS = words(
    "ingredients",
    "entity",
    """
    butter; honey; garlic; onions|onion; cheese; cream; coconut milk; soy sauce; spinach; mushrooms; tofu; tomatoes;
    lemon juice; yoghurt|yogurt; walnuts; chickpeas; lentils; ginger; basil; parsley; cumin; paprika; maple syrup;
    olive oil; brown sugar; cinnamon; white wine; bacon; capers; olives; sesame oil; peanut butter; sour cream;
    vinegar
    """,
)
DISHES = words(
    "dishes",
    "entity",
    """
    lasagne|lasagna; risotto; curry; chilli|chili; banana bread; pancakes; pad thai; shepherd's pie; carbonara;
    ratatouille; carrot cake; brownies; tomato soup; potato salad; paella; goulash; meatballs; cheesecake;
    fried rice; moussaka; apple crumble; minestrone; tacos; stir-fry; omelettes; waffles; gnocchi; dumplings
    """,
)
FOODS = words(
    "foods",
    "entity",
    """
    chicken breast|chicken breasts; salmon; cod; pork chops; beef; lamb; turkey; prawns|shrimp; potatoes;
    sweet potatoes; broccoli; cauliflower; aubergine|eggplant; courgette|zucchini; brown rice; quinoa; eggs;
    mackerel; duck; tuna steak; asparagus; carrots; pumpkin; green beans; Brussels sprouts; sausages; trout
    """,
)
MEDICINES = words(
    "medicines",
    "entity",
    """
    ibuprofen; paracetamol|acetaminophen; aspirin; amoxicillin; metformin; omeprazole; loratadine; cetirizine;
    atorvastatin; levothyroxine; naproxen; doxycycline; prednisone; sertraline; lisinopril; amlodipine; warfarin;
    iron tablets; vitamin D; magnesium
    """,
)
TOPICS = words(
    "topics",
    "entity",
    """
    photosynthesis; inflation; black holes; climate change|global warming; the French Revolution; machine learning;
    vaccines; plate tectonics; supply and demand; the water cycle; quantum computing; evolution; the Cold War;
    blockchain; gravity; the stock market; volcanoes; antibiotics; the solar system; electricity; democracy; DNA;
    the Roman Empire; tides; nuclear energy; the immune system; compound interest; the greenhouse effect
    """,
)
GADGETS = words(
    "gadgets",
    "entity",
    """
    iPhone 15; Galaxy S24|Samsung Galaxy S24; Pixel 8|Google Pixel 8; MacBook Air; Dell XPS 13; ThinkPad X1;
    iPad Mini; Kindle Paperwhite; Nintendo Switch; PlayStation 5|PS5; Xbox Series X; GoPro Hero 12;
    Apple Watch Ultra; Surface Pro 9; AirPods Max; Bose QC45; Fairphone 5; Steam Deck OLED; Fitbit Charge 6;
    Garmin Fenix 7; Sonos One; Dyson V15; Roomba j7; Meta Quest 3; OnePlus 12; Canon EOS R5; Nikon Z6; DJI Mini 4
    """,
)
GOODS = words(
    "goods",
    "entity",
    """
    shoes; headphones|earphones; jeans; sunglasses; perfume; books; swimwear|swimsuits; furniture; jewellery|jewelry;
    video games; laptops; toys; bed sheets; bicycles|bikes; watches; kitchen knives; curtains; backpacks; mattresses;
    lamps; running shoes; printers; candles; cameras
    """,
)
COMPANIES = words(
    "companies",
    "entity",
    """
    Tesla; Microsoft; Toyota; Siemens; Nike; Coca-Cola; Pfizer; Boeing; Intel; Nvidia; Disney; Walmart; Nestle;
    Unilever; Shell; Volkswagen; Starbucks; IBM; Oracle; Visa; Airbus; Adidas; Novartis; SAP; Ford; Honda; Cisco;
    Qualcomm
    """,
)
CURRENCIES = words(
    "currencies",
    "entity",
    """
    US dollars|USD; euros|EUR; British pounds|pounds sterling|GBP; Japanese yen|yen|JPY; Swiss francs|CHF;
    Canadian dollars|CAD; Australian dollars|AUD; Indian rupees|INR; Chinese yuan|yuan|CNY; Mexican pesos|MXN;
    Swedish kronor|SEK; Polish zloty|PLN; Turkish lira|TRY; Brazilian reais|BRL; South African rand|ZAR;
    Thai baht|THB; Korean won|KRW; Czech koruna|CZK; Hungarian forints|HUF; Danish kroner|DKK; Singapore dollars|SGD
    """,
)
ANIMALS = words(
    "animals",
    "entity",
    """
    snakes; spiders; sharks; bats; frogs; bees; ants; parrots; owls; penguins; whales; dolphins; turtles; lizards;
    eagles; bears; wolves; foxes; rabbits; squirrels; octopuses; jellyfish; scorpions; crocodiles; kangaroos;
    beetles; butterflies
    """,
)
TEAMS = words(
    "teams",
    "entity",
    """
    Real Madrid; Arsenal; Liverpool; Chelsea; Juventus; Bayern Munich; Ajax; Celtic; Benfica; AC Milan; Inter Milan;
    Everton; Tottenham|Spurs; Manchester City|Man City; Borussia Dortmund|Dortmund; Atletico Madrid; Sevilla; Roma;
    Napoli; Lazio; Lyon; Marseille; Feyenoord; Galatasaray; West Ham
    """,
)
MOVIES = words(
    "movies",
    "entity",
    """
    Titanic; Inception; The Godfather; Casablanca; Jaws; Psycho; Gladiator; Alien; Parasite; Amelie; Rocky; Vertigo;
    Frozen; The Matrix; Pulp Fiction; Goodfellas; The Shining; Taxi Driver; Spirited Away; Blade Runner; Fight Club;
    Chinatown; Back to the Future; The Pianist; Braveheart; Moonlight
    """,
)
PLANTS = words(
    "plants",
    "entity",
    """
    orchid; cactus; monstera; peace lily; snake plant; basil plant; rosemary bush; lavender; fern; rubber plant;
    bonsai; aloe vera; lemon tree; ficus; spider plant; jade plant; hibiscus; ivy; olive tree; tomato plant
    """,
)

WEEKDAYS = words(
    "weekdays",
    "weekday",
    "Monday|Mon; Tuesday|Tue; Wednesday|Wed; Thursday|Thu; Friday|Fri; Saturday|Sat; Sunday|Sun",
)
MONTHS = words(
    "months",
    "date",
    "January; February; March; April; May; June; July; August; September; October; November; December",
)
DATES = dates("dates", 2027)
DAYS = days_of_year("days of the year")
CLOCK = clock_times("clock times")
ORDERS = identifiers("orders", 240, 5)

SMALL = counts("small counts", "number", range(2, 21))
PEOPLE_FED = counts("people fed", "number", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24])
LONG_COUNTS = counts("long counts", "number", [*range(5, 20), *range(20, 100, 5)])
AGES = counts("ages", "number", range(12, 76))
YEARS = counts("years", "number", range(1960, 2020))
LENGTHS_OF_TEXT = counts("text lengths", "length", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 18, 20, 25, 30, 40, 50])

SHORT_TIMES = quantities(
    "short times",
    {"minute": [5, 10, 15, 20, 25, 30, 40, 45, 50, 60, 75, 90, 120, 150, 180], "hour": [*range(1, 11)]},
)
LONG_TIMES = quantities(
    "long times",
    {
        "day": [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 20, 21, 28, 30, 45, 60, 90],
        "week": [*range(1, 13)],
        "month": [*range(1, 13)],
    },
)
TERMS = quantities("terms", {"month": [3, 6, 9, 12, 15, 18, 24, 30, 36, 48, 60], "year": [*range(1, 21), 25, 30]})
SCREEN_TIMES = quantities(
    "screen times", {"second": [10, 15, 20, 30, 45, 60, 90], "minute": [1, 2, 3, 4, 5, 10, 15, 20, 30, 45]}
)
LENGTHS = quantities(
    "metric lengths",
    {
        "cm": [15, 20, 40, 60, 75, 80, 120, 150, 180],
        "m": [2, 3, 5, 8, 12, 15, 20, 40, 60, 100, 400],
        "km": [2, 3, 5, 8, 12, 15, 20, 40, 60, 75, 120],
    },
)
WEIGHTS = quantities(
    "metric weights",
    {
        "g": [50, 75, 100, 125, 150, 200, 250, 300, 350, 400, 500, 600, 750, 1500],
        "kg": [1, 2, 3, 4, 5, 6, 8, 10, 12, 75, 100],
    },
)
BAGGAGE = quantities("baggage", {"kg": [*range(5, 33)], "pound": [*range(10, 61, 2)]})
VOLUMES = quantities(
    "volumes",
    {
        "ml": [100, 125, 150, 200, 250, 300, 400, 500, 600, 750, 1500],
        "litre": [1, 2, 3, 4, 5, 6, 8],
        "cup": [1, 2, 3, 4, 5, 6, 8],
    },
)
DOSES = quantities(
    "doses", {"mg": [5, 10, 20, 25, 40, 50, 75, 80, 100, 150, 200, 250, 300, 325, 400, 500, 600, 650, 800, 850]}
)
OVEN = temperatures("oven temperatures", {"C": [*range(120, 260, 10)], "F": [*range(250, 500, 10)]})
DEGREES = temperatures("temperatures", {"C": [*range(-20, 105, 5)], "F": [*range(-10, 215, 5)]})
FEVERS = temperatures("fevers", {"C": [37, 38, 39, 40, 41], "F": [99, 100, 101, 102, 103, 104, 105]})
FEVER_TIMES = quantities(
    "fever times", {"hour": [2, 3, 4, 5, 6, 7, 8, 10, 12, 18, 24, 36, 48, 72], "day": [*range(1, 11)]}
)
FOOD_WEIGHTS = quantities(
    "food weights",
    {
        "g": [50, 60, 75, 100, 125, 150, 200, 250, 300, 350, 400, 500, 600, 750],
        "kg": [1, 2, 3, 4],
        "ounce": [4, 5, 6, 8, 10, 12, 50, 60],
        "pound": [1, 2, 3, 4],
    },
)
FILM_TIMES = quantities(
    "film times", {"minute": [60, 75, 80, 85, 90, 95, 100, 105, 110, 115, 120, 130, 140, 150, 165, 180, 200, 210]}
)
RENTS = money("rents", [350, 400, 450, 500, 550, 600, 650, 700, 750, 800, 900, 950, 1000, 1100, 1200, 1400, 1500, 1800])
PRICES = money(
    "prices",
    [
        10,
        15,
        20,
        25,
        30,
        35,
        40,
        45,
        50,
        60,
        65,
        70,
        75,
        80,
        90,
        95,
        110,
        120,
        130,
        150,
        180,
        200,
        250,
        300,
        350,
        400,
        450,
        500,
        600,
        800,
    ],
)
SUMS = money(
    "sums",
    [1000, 1200, 1500, 2000, 2500, 3000, 4000, 4500, 5000, 7500, 8000, 10000, 12000, 15000, 20000, 25000, 40000, 50000],
)
RATES = percentages("rates", [*range(1, 13), 15, 18])
SHARES = percentages("percentages", [5, 8, 10, 12, 15, 18, 20, 22, 25, 30, 35, 40, 45, 50, 60, 70, 75, 80])
