"""What people ask about animals, plants, sport and films."""

from __future__ import annotations

from headgate.bench.cache.slots import choice
from headgate.bench.cache.vocabulary import (
    ANIMALS,
    FILM_TIMES,
    LONG_TIMES,
    MOVIES,
    PLANTS,
    SMALL,
    TEAMS,
    YEARS,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "nature.animals_trait",
        """
        is it true that {which} {animals} {trait}?
        do {which} {animals} {trait}?
        {which} {animals} {trait}, true?
        would you say that {which} {animals} {trait}?
        I've read that {which} {animals} {trait}. Is that [right|correct]?
        my teacher claims that {which} {animals} {trait}, is she right?
        can you [confirm|verify] that {which} {animals} {trait}?
        true or false: {which} {animals} {trait}
        """,
        which=choice(
            "quantifier", "all=all|all kinds of; some=some|some kinds of; most=most|most kinds of; no=no|no kinds of"
        ),
        animals=ANIMALS,
        trait=choice(
            "aspect",
            "hibernate|sleep through the winter; lay eggs; live in groups; see in the dark|have night vision; "
            "eat meat; migrate; "
            "have teeth; live in fresh water|live in freshwater",
        ),
    ),
    intent(
        "nature.lifespan",
        """
        do {first} live longer than {second} in {place}?
        do {second} live shorter lives than {first} in {place}?
        in {place}, do {first} get older than {second}?
        {first} live longer than {second} {place}?
        is the lifespan of {first} longer than that of {second} in {place}?
        is it true that {first} outlive {second} in {place}?
        is the life expectancy of {second} lower than that of {first} in {place}?
        I've heard {first} live longer than {second} in {place}. Is that [right|correct]?
        """,
        roles="first second",
        first=ANIMALS,
        second=ANIMALS,
        place=choice("aspect", "the wild|nature; captivity|zoos"),
    ),
    intent(
        "nature.feed",
        """
        what do {animals} {eat} in {season}?
        {animals} {season} what do they {eat}
        which things do {animals} {eat} during {season}?
        tell me what {animals} {eat} in {season}
        in {season}, what do {animals} {eat}?
        I'd like to know what {animals} {eat} when it's {season}
        when it's {season}, what is it that {animals} {eat}?
        can you [explain|describe] what {animals} {eat} in {season}?
        """,
        animals=ANIMALS,
        eat=choice("negation", "eat|feed on; not eat=refuse to eat|never eat"),
        season=choice("date", "spring; summer|summertime; autumn|fall; winter|wintertime"),
    ),
    intent(
        "sport.players",
        """
        were {which} the players of {team} injured in {year}?
        {team} {year} {which} the players injured?
        in {year}, were {which} {team}'s players injured?
        is it true that {which} the players {team} had in {year} were injured?
        did injuries hit {which} the players of {team} in {year}?
        I read that {which} {team}'s players were hurt in {year}. Is that [right|correct]?
        can you [check|confirm] that {which} the {team} players got injured in {year}?
        {which} the players at {team} were injured in {year}, true or false?
        """,
        which=choice("quantifier", "all=all of|every one of; some=some of|a few of; none=none of; most=most of"),
        team=TEAMS,
        year=YEARS,
    ),
    intent(
        "plants.water",
        """
        how often should I water a(n) {plant} {place} in {season}?
        how frequently does a(n) {plant} need water {place} in {season}?
        {plant} watering {place} {season} how often
        I keep a(n) {plant} {place}. How often does it need watering in {season}?
        in {season}, how often do I water a(n) {plant} that's {place}?
        what's the right watering interval for a(n) {plant} {place} during {season}?
        my {plant} lives {place}; tell me how often to give it water in {season}
        every how many days does a(n) {plant} {place} want water in {season}?
        """,
        plant=PLANTS,
        place=choice("antonym", "indoors|inside; outdoors|outside"),
        season=choice("date", "spring; summer|summertime; autumn|fall; winter|wintertime"),
    ),
    intent(
        "plants.repot",
        """
        is {time} {order} flowering a good time to [repot|transplant] a(n) {plant}?
        should I [repot|transplant] my {plant} {time} {order} it flowers?
        [repot|transplant] {plant} {time} {order} flowering
        my {plant} can be repotted {time} {order} flowering, is that [right|correct]?
        can a(n) {plant} be [repotted|moved to a new pot] {time} {order} it blooms?
        is it good for a(n) {plant} to be repotted {time} {order} flowering?
        {time} {order} it blooms, may I give my {plant} a new pot?
        I plan on repotting my {plant} {time} {order} it flowers. Is that a good idea?
        """,
        plant=PLANTS,
        time=LONG_TIMES,
        order=choice("temporal order", "before; after"),
    ),
    intent(
        "sport.beat",
        """
        did {first} beat {second} in {year}?
        did {second} lose to {first} in {year}?
        {first} beat {second} {year}?
        was there a win of {first} over {second} in {year}?
        in {year}, did {first} [win against|defeat] {second}?
        did {first} ever [defeat|beat] {second} in {year}?
        I remember that {first} beat {second} in {year}. Is that [true|correct]?
        did {second} suffer a defeat against {first} in {year}?
        """,
        roles="first second",
        first=TEAMS,
        second=TEAMS,
        year=YEARS,
    ),
    intent(
        "sport.season",
        """
        how many {what} did {team} have {place} in {year}?
        {team} {what} {place} {year}
        what was the number of {what} {team} had {place} in {year}?
        in {year}, how many {what} did {team} get {place}?
        tell me how many {what} {team} collected {place} in {year}
        I'm after the {what} of {team} {place} in {year}. How many were there?
        do you know how many {what} there were for {team} {place} in {year}?
        for {year}, how many {what} does the record show for {team} {place}?
        """,
        what=choice("antonym", "wins|victories; defeats|losses; draws; red cards; goals"),
        team=TEAMS,
        place=choice("aspect", "at home; away|away from home"),
        year=YEARS,
    ),
    intent(
        "films.credit",
        """
        who {role} the [film|movie] {movie}?
        [film|movie] {movie} who {role} it
        can you tell me who {role} {movie}?
        {movie} is a film I like. Who {role} it?
        I'd like to know who {role} the film {movie}
        the [film|movie] {movie}: who {role} it?
        which person {role} {movie}, the film?
        do you remember who {role} the film {movie}?
        """,
        role=choice(
            "aspect",
            "directed; wrote=wrote|scripted; produced; edited; scored=composed the music for|wrote the music for; "
            "shot=shot|photographed; "
            "starred=played the lead in|had the main role in",
        ),
        movie=MOVIES,
    ),
    intent(
        "films.older",
        """
        did {first} come out before {second}?
        did {second} come out after {first}?
        is {first} an older [film|movie] than {second}?
        is {second} a newer [film|movie] than {first}?
        {first} released before {second}?
        was {first} in cinemas earlier than {second}?
        was the release of {second} later than that of {first}?
        I believe {first} is older than {second}. Is that [right|correct]?
        """,
        roles="first second",
        first=MOVIES,
        second=MOVIES,
    ),
    intent(
        "films.suggest",
        """
        recommend {count} films like {movie} that are {length} {time}
        what are {count} [films|movies] similar to {movie} but {length} {time}?
        {count} films like {movie} {length} {time}
        I liked {movie}. Which {count} similar films are {length} {time}?
        can you [suggest|name] {count} movies in the style of {movie} with a running time {length} {time}?
        please find {count} films resembling {movie} which run {length} {time}
        for a fan of {movie}, name {count} films that last {length} {time}
        give me {count} titles similar to {movie}, {length} {time} each
        """,
        count=SMALL,
        movie=MOVIES,
        length=choice("comparator", "under=under|less than|shorter than; over=over|more than|longer than"),
        time=FILM_TIMES,
    ),
)
