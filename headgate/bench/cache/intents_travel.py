"""What people ask about travel, countries and the past."""

from __future__ import annotations

from headgate.bench.cache.slots import choice
from headgate.bench.cache.vocabulary import (
    BAGGAGE,
    CITIES,
    CLOCK,
    COUNTRIES,
    DATES,
    FIGURES,
    LANGUAGES,
    LENGTHS_OF_TEXT,
    LONG_TIMES,
    MONTHS,
    PRICES,
    SMALL,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "travel.flight",
        """
        are there any direct flights from {start} to {goal} on {date}?
        I need a nonstop flight from {start} to {goal} on {date}
        [find|show] me nonstop flights to {goal} from {start} on {date}
        direct flight {start} to {goal} {date}
        on {date} I want to fly nonstop from {start} to {goal}. [What are my options|What is there]?
        which nonstop flights go from {start} to {goal} on {date}?
        I have to be on a direct flight to {goal} on {date}, leaving from {start}. Which ones are there?
        leaving {start} on {date}, can I get to {goal} without changing planes?
        is it possible to fly from {start} to {goal} without a stopover on {date}?
        """,
        roles="start goal",
        start=CITIES,
        goal=CITIES,
        date=DATES,
    ),
    intent(
        "travel.train_time",
        """
        when does the {which} train from {start} to {goal} [leave|depart] on {weekday:s}?
        what time is the {which} train to {goal} from {start} on a(n) {weekday:full}?
        {which} train {start} to {goal} {weekday} departure time
        on {weekday:s}, when does the {which} train go from {start} to {goal}?
        I'd like to take the {which} train from {start} to {goal} on {weekday}. When does it leave?
        tell me the departure time of the {which} {weekday:full} train from {start} to {goal}
        going from {start} to {goal} on a(n) {weekday:full}, when is the {which} train?
        could you look up when the {which} train leaves {start} for {goal} on {weekday:s}?
        """,
        roles="start goal",
        which=choice("antonym", "first=first|earliest; last=last|latest"),
        start=CITIES,
        goal=CITIES,
        weekday=choice(
            "weekday",
            "Monday|Mon  ~s Mondays  ~full Monday; Tuesday|Tue  ~s Tuesdays  ~full Tuesday; Wednesday|Wed  "
            "~s Wednesdays  ~full Wednesday;"
            "Thursday|Thu ~s Thursdays ~full Thursday; Friday|Fri ~s Fridays ~full Friday; "
            "Saturday|Sat ~s Saturdays ~full Saturday; Sunday|Sun ~s Sundays ~full Sunday",
        ),
    ),
    intent(
        "travel.distance",
        """
        how far is it from {start} to {goal} in {unit}?
        what is the distance between {start} and {goal} in {unit}?
        distance {start} {goal} {unit}
        how many {unit} are there between {start} and {goal}?
        {start} and {goal}: how many {unit} apart are they?
        give me the distance from {start} to {goal}, in {unit} please
        in {unit}, how far apart are {start} and {goal}?
        I want to know how far {start} is from {goal}, in {unit}
        """,
        symmetric="start goal",
        start=CITIES,
        goal=CITIES,
        unit=choice("unit", "km=kilometres|kilometers|km; miles; nautical miles"),
    ),
    intent(
        "travel.hotel",
        """
        are there hotels in {city} {comparator} {sum} a night {breakfast} breakfast?
        I'm looking for a hotel in {city}, {comparator} {sum} per night, {breakfast} breakfast
        hotels {city} {comparator} {sum} per night {breakfast} breakfast
        find me a place to stay in {city} {breakfast} breakfast that is {comparator} {sum} a night
        which hotels in {city} are {comparator} {sum} per night {breakfast} breakfast?
        {breakfast} breakfast and {comparator} {sum} a night: what hotels are there in {city}?
        can you suggest hotels in {city}, {comparator} {sum} per night and {breakfast} breakfast?
        show hotel rooms in {city} {breakfast} breakfast that cost {comparator} {sum} a night
        """,
        city=CITIES,
        comparator=choice("comparator", "under=under|below|less than; over=over|above|more than"),
        sum=PRICES,
        breakfast=choice("negation", "with; without"),
    ),
    intent(
        "travel.visa",
        """
        do citizens of {home} need a visa for {goal} if they stay {comparator} {time}?
        I'm a citizen of {home}. Do I need a visa to stay in {goal} for {comparator} {time}?
        visa {goal} for citizens of {home} stay {comparator} {time}
        staying in {goal} for {comparator} {time} on a passport from {home}, is a visa [needed|required]?
        with a passport from {home}, do I have to get a visa to visit {goal} for {comparator} {time}?
        is a visa [necessary|needed|required] for someone from {home} to stay {comparator} {time} in {goal}?
        I hold a passport of {home} and I'm going to {goal} for {comparator} {time}. Must I get a visa?
        what are the visa rules of {goal} for people from {home} who stay {comparator} {time}?
        """,
        roles="home goal",
        home=COUNTRIES,
        goal=COUNTRIES,
        comparator=choice("comparator", "more=more than|longer than|over; less=less than|under"),
        time=LONG_TIMES,
    ),
    intent(
        "travel.baggage",
        """
        can I take a(n) {kind} bag of {weight} on {airline}?
        is a(n) {kind} bag weighing {weight} [allowed|permitted] on {airline}?
        {airline} {kind} bag {weight} allowed
        does {airline} let me bring a(n) {kind} bag that weighs {weight}?
        I'm flying with {airline} and my {kind} bag weighs {weight}. Is that [OK|all right]?
        my {kind} bag is {weight}; will {airline} accept it?
        on {airline}, may a(n) {kind} bag weigh {weight}?
        flying {airline}, is it fine if my {kind} bag weighs {weight}?
        """,
        kind=choice("aspect", "cabin=carry-on|cabin|hand luggage; hold=checked|hold"),
        weight=BAGGAGE,
        airline=choice(
            "entity",
            "Lufthansa; Ryanair; Emirates; Air France; Delta; United Airlines; KLM; Qantas; Iberia; EasyJet; "
            "Finnair; ANA; Aeromexico",
        ),
    ),
    intent(
        "travel.climate",
        """
        what is the average {aspect} in {city} in {month}?
        how much is the [typical|average] {aspect} in {city} in {month}?
        {city} {month} average {aspect}
        I'm going to {city} in {month}. What's the typical {aspect} there?
        what {aspect} can I expect in {city} during {month}?
        tell me the usual {aspect} for {month} in {city}
        in {month}, what's the {aspect} normally like in {city}?
        for a trip to {city} in {month}, I need to know the average {aspect}
        """,
        aspect=choice(
            "aspect",
            "temperature; rainfall|amount of rain; humidity|air humidity; sea temperature|water temperature; "
            "wind speed",
        ),
        city=CITIES,
        month=MONTHS,
    ),
    intent(
        "travel.time_zone",
        """
        if it's {clock} in {start}, what time is it in {goal}?
        what time is it in {goal} when it is {clock} in {start}?
        {clock} {start} time in {goal}
        convert {clock} from {start} time to {goal} time
        when the clock says {clock} in {start}, what does it say in {goal}?
        it's {clock} in {start}. What's the [local time|time] in {goal}?
        my meeting starts at {clock} {start} time. What time is that in {goal}?
        someone in {start} calls at {clock} their time, what time is that for me in {goal}?
        """,
        roles="start goal",
        clock=CLOCK,
        start=CITIES,
        goal=CITIES,
    ),
    intent(
        "travel.itinerary",
        """
        plan a trip of {time} to {country} that [skips|leaves out] the {avoid}
        I've got {time} in {country} and don't care for the {avoid}. What should I [do|see]?
        {country} {time} itinerary no {avoid}
        what's a good route through {country} in {time} [without|leaving out] the {avoid}?
        [suggest|propose] a(n) {country} itinerary for {time} that stays away from the {avoid}
        how should I spend {time} in {country} if I want to avoid the {avoid}?
        we'll be in {country} for {time} and we'd rather avoid the {avoid}; can you plan the days?
        help me plan {time} in {country}, please, but keep away from the {avoid}
        """,
        time=LONG_TIMES,
        country=COUNTRIES,
        avoid=choice(
            "exception", "capital; beaches|seaside; museums; mountains; nightclubs|clubs; big cities|large cities"
        ),
    ),
    intent(
        "geography.country_fact",
        """
        what is the {aspect} of {country}?
        can you tell me the {aspect} of {country}?
        {country} {aspect}
        do you know the {aspect} of {country}?
        I'd like to know the {aspect} of {country}
        tell me {country}'s {aspect}, please
        which {aspect} does {country} have?
        for a quiz: what's the {aspect} of {country}?
        """,
        aspect=choice(
            "aspect",
            "capital|capital city; population|number of inhabitants; area|surface area; currency; "
            "highest point|highest peak; "
            "longest river; calling code|dialling code; national anthem; life expectancy; GDP|gross domestic product",
        ),
        country=COUNTRIES,
    ),
    intent(
        "geography.larger",
        """
        does {first} have a larger {aspect} than {second}?
        does {second} have a smaller {aspect} than {first}?
        is the {aspect} of {first} larger than that of {second}?
        is the {aspect} of {second} smaller than that of {first}?
        {first} larger {aspect} than {second}?
        is it true that {first} beats {second} in {aspect}?
        my friend says {first} has a [bigger|larger] {aspect} than {second}. Is that so?
        compared with {second}, is the {aspect} of {first} [bigger|larger]?
        """,
        roles="first second",
        first=COUNTRIES,
        second=COUNTRIES,
        aspect=choice("aspect", "population; area|land area; economy; coastline; army; forest area"),
    ),
    intent(
        "geography.language_spoken",
        """
        is {language} an official language of {country}?
        does {country} have {language} as an official language?
        {language} official language {country}?
        in {country}, does {language} have official status?
        is it correct that {language} is one of the official languages of {country}?
        I wonder whether {language} is officially recognised as a language of {country}
        can you check if {language} counts as an official language in {country}?
        do the official languages of {country} include {language}?
        """,
        language=LANGUAGES,
        country=COUNTRIES,
    ),
    intent(
        "geography.list_places",
        """
        name {count} {places} in {country}
        can you [list|name] {count} {places} in {country}?
        {count} {places} {country} list
        what are {count} {places} that lie in {country}?
        I need a list of {count} {places} in {country}
        give me the names of {count} {places} in {country}, please
        {country}: tell me {count} {places} there
        which {count} {places} of {country} could you name?
        """,
        count=SMALL,
        places=choice(
            "entity",
            "rivers; lakes; mountains; islands; national parks; cities|towns; airports; castles; regions; "
            "ports|harbours",
        ),
        country=COUNTRIES,
    ),
    intent(
        "geography.border_city",
        """
        which is further {direction}, {first} or {second}?
        does {first} or {second} lie further {direction}?
        {first} {second} further {direction}?
        of {first} and {second}, which city is more to the {direction}?
        is it {first} or {second} that is further to the {direction}?
        between {first} and {second}, tell me which lies more to the {direction}
        I'd like to know which city is further {direction}: {first} or {second}
        [comparing|if you compare] {first} and {second}, which one is located further {direction}?
        """,
        symmetric="first second",
        direction=choice("antonym", "north; south; east; west"),
        first=CITIES,
        second=CITIES,
    ),
    intent(
        "history.life",
        """
        {aspect} was {figure} {event}?
        do you know {aspect} {figure} was {event}?
        tell me {aspect} {figure} was {event}
        {figure} {event} {aspect}
        I'd like to know {aspect} {figure} was {event}
        can you find out {aspect} {figure} was {event}?
        for my essay I need to know {aspect} {figure} was {event}
        {figure}: {event} {aspect}?
        """,
        aspect=choice("aspect", "when=when|in which year; where=where|in which place"),
        figure=FIGURES,
        event=choice("antonym", "born; buried=buried|laid to rest; baptised=baptised|christened|baptized; married"),
    ),
    intent(
        "history.died_first",
        """
        did {first} die before {second}?
        did {second} die after {first}?
        was {first}'s death earlier than {second}'s?
        did {first} die earlier than {second}?
        {first} died before {second}?
        is it true that {first} [died|passed away] before {second}?
        I think {second} died later than {first}. Is that [right|correct]?
        someone told me that {second} outlived {first}, is that so?
        did {second} outlive {first}?
        """,
        roles="first second",
        first=FIGURES,
        second=FIGURES,
    ),
    intent(
        "history.letter",
        """
        write a letter of {count} lines from {first} to {second} in {language}
        imagine {first} writes to {second}: {count} lines, in {language}
        letter {first} to {second} {count} lines {language}
        in {language}, please make up a letter of {count} lines that {first} sends to {second}
        what would {first} write to {second}? Answer with {count} lines in {language}
        I need a made-up letter to {second} from {first}, {count} lines long and in {language}
        pretend to be {first} and write {second} {count} lines in {language}
        can you invent a letter by {first}, addressed to {second}, with {count} lines in {language}?
        """,
        roles="first second",
        first=FIGURES,
        second=FIGURES,
        count=LENGTHS_OF_TEXT,
        language=LANGUAGES,
    ),
)
