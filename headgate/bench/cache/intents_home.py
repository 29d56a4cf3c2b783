"""What people ask in the kitchen, with a measuring tape or feeling unwell."""

from __future__ import annotations

from headgate.bench.cache.slots import choice, counts
from headgate.bench.cache.vocabulary import (
    CITIES,
    CLOCK,
    DATES,
    DEGREES,
    DISHES,
    DOSES,
    FEVER_TIMES,
    FEVERS,
    FOOD_WEIGHTS,
    FOODS,
    INGREDIENTS,
    LENGTHS,
    LONG_TIMES,
    MEDICINES,
    OVEN,
    PEOPLE_FED,
    SHORT_TIMES,
    SMALL,
    VOLUMES,
    WEIGHTS,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "cooking.oven_time",
        """
        how long do I {method} {food} at {temp}?
        how many minutes does it take to {method} {food} at {temp}?
        {method} {food} {temp} how long
        what's the cooking time if I {method} {food} at {temp}?
        I want to {method} {food} at {temp}. How long [will that|does it] take?
        at {temp}, how long should I {method} {food}?
        tell me for how long to {method} {food} at {temp}
        the oven is set to {temp}. How much time do I need to {method} {food}?
        """,
        method=choice("entity", "roast; grill|broil; bake; reheat|warm up; dehydrate|dry"),
        food=FOODS,
        temp=OVEN,
    ),
    intent(
        "cooking.substitute",
        """
        can I use {new} instead of {old} in {dish}?
        can I [replace|substitute] {old} with {new} in {dish}?
        {new} instead of {old} {dish}
        I'm out of {old}. Will {new} do for {dish}?
        does {dish} still work if I [swap|exchange] {old} for {new}?
        the recipe for {dish} says {old}, but I only have {new}. Is that [OK|fine]?
        is {new} a good [replacement|substitute] for {old} when making {dish}?
        can I leave {old} out of {dish} and take {new} instead?
        making {dish}: is it fine to use {new} in place of {old}?
        """,
        roles="new old",
        new=INGREDIENTS,
        old=INGREDIENTS,
        dish=DISHES,
    ),
    intent(
        "cooking.recipe",
        """
        give me a recipe for {dish} {having} {ingredient} for {count} people
        how do I [make|cook|prepare] {dish} {having} {ingredient} for {count} people?
        {dish} recipe {having} {ingredient}, serves {count}
        I want to [cook|make] {dish} {having} {ingredient} for {count}
        what's a good {dish} recipe {having} {ingredient} that [feeds|serves] {count}?
        we're {count} people and would like {dish} {having} {ingredient}. How do I make it?
        can you [find|suggest] a way to [make|cook] {dish} {having} {ingredient} for {count} guests?
        for {count} people, how is {dish} made {having} {ingredient}?
        """,
        dish=DISHES,
        ingredient=INGREDIENTS,
        count=PEOPLE_FED,
        having=choice("negation", "with; without"),
    ),
    intent(
        "cooking.storage",
        """
        how long will {state} {food} keep in the {place}?
        for how long can I [keep|store] {state} {food} in the {place}?
        {state} {food} {place} how long
        there's some {state} {food} in my {place}. How long before I have to throw it away?
        how many days will {state} {food} be good for in the {place}?
        what's the longest I can leave {state} {food} in the {place}?
        in the {place}, how long will {state} {food} stay [fresh|good]?
        when should I throw out {state} {food} kept in the {place}?
        """,
        state=choice("antonym", "cooked; raw|uncooked"),
        food=FOODS,
        place=choice("entity", "fridge|refrigerator; freezer"),
    ),
    intent(
        "cooking.order",
        """
        should I add {first} {order} {second} when making {dish}?
        do I put in {first} {order} {second} for {dish}?
        {dish}: {first} {order} {second}?
        when I [cook|make] {dish}, do I add the {first} {order} the {second}?
        is it right to add {first} {order} {second} in a recipe for {dish}?
        I'm making {dish}. Is it better to add {first} {order} {second}?
        the recipe for {dish} says to add {first} {order} {second}. Is that right?
        in {dish}, should {first} go into the pot {order} {second}?
        """,
        first=INGREDIENTS,
        second=INGREDIENTS,
        dish=DISHES,
        order=choice("temporal order", "before|ahead of; after; together with|at the same time as"),
    ),
    intent(
        "cooking.ideas",
        """
        what can I cook with {first} and {second} in {comparator} {time}?
        dinner ideas with {first} and {second}, ready in {comparator} {time}
        {first} {second} recipes {comparator} {time}
        I have {first} and {second}. Which dishes take {comparator} {time}?
        suggest something with {first} and {second} that takes {comparator} {time} to [make|cook|prepare]
        which meals with {first} and {second} need {comparator} {time} of cooking?
        show me dishes using {first} and {second} with a cooking time of {comparator} {time}
        using {first} and {second}, what could I make that is done in {comparator} {time}?
        """,
        symmetric="first second",
        first=FOODS,
        second=FOODS,
        comparator=choice("comparator", "less=less than|under; more=more than|over"),
        time=SHORT_TIMES,
    ),
    intent(
        "cooking.nutrition",
        """
        how much {aspect} is there in {weight} of {food}?
        how much {aspect} does {weight} of {food} [have|contain]?
        {aspect} in {weight} of {food}
        {food} {weight} {aspect}
        I ate {weight} of {food}. How much {aspect} was that?
        what amount of {aspect} do I get from {weight} of {food}?
        tell me the {aspect} content of {weight} of {food}
        if I eat {weight} of {food}, how much {aspect} am I getting?
        """,
        aspect=choice("aspect", "protein; fat; sugar; fibre|fiber|dietary fibre; salt; iron; calcium; cholesterol"),
        weight=FOOD_WEIGHTS,
        food=FOODS,
    ),
    intent(
        "cooking.liquid",
        """
        how much {powder} do I need for {volume} of {liquid}?
        what amount of {powder} goes into {volume} of {liquid}?
        {powder} for {volume} of {liquid}
        I'm making {volume} of {liquid}. How much {powder} should I add?
        for {volume} of {liquid}, how much {powder} is [needed|required]?
        tell me how much {powder} to use with {volume} of {liquid}
        to prepare {volume} of {liquid}, what quantity of {powder} do I need?
        I want {volume} of {liquid}, so how much {powder} has to go in?
        """,
        powder=choice(
            "entity", "salt; sugar; flour; yeast; cornstarch|cornflour; pepper; gelatine|gelatin; stock powder"
        ),
        volume=VOLUMES,
        liquid=choice("entity", "brine; soup; custard; gravy; lemonade; jelly; hot chocolate; pancake batter"),
    ),
    intent(
        "units.length",
        """
        how many {unit} is {length}?
        convert {length} to {unit}
        {length} in {unit}
        what is {length} in {unit}?
        I have a length of {length} and need it in {unit}
        could you [turn|change] {length} into {unit}?
        [expressed|measured] in {unit}, how much is {length}?
        {length} equals how many {unit}?
        """,
        length=LENGTHS,
        unit=choice("unit", "inches|inch; feet|ft; yards; miles; nautical miles; fathoms"),
    ),
    intent(
        "units.weight",
        """
        how many {unit} are {weight}, to {count} decimal places?
        convert {weight} to {unit} with {count} decimals
        {weight} in {unit}, {count} decimals
        what is {weight} in {unit}, rounded to {count} decimal places?
        please give me {weight} in {unit}, with {count} digits after the decimal point
        I need {weight} [expressed|written] in {unit} to {count} decimal places
        with {count} decimals, how much is {weight} in {unit}?
        [change|turn] {weight} into {unit} and round to {count} decimals
        """,
        weight=WEIGHTS,
        unit=choice("unit", "pounds|lbs; ounces|oz; stone|stones; carats; troy ounces"),
        count=counts("", "format", range(2, 7)),
    ),
    intent(
        "units.temperature",
        """
        what is {temp} in {unit}?
        convert {temp} to {unit}
        {temp} in {unit}
        how much is {temp} on the {unit} scale?
        the thermometer shows {temp}. What's that in {unit}?
        please [change|turn] {temp} into {unit}
        {temp} is how many degrees {unit}?
        I'd like to have {temp} expressed in {unit}
        """,
        temp=DEGREES,
        unit=choice("unit", "Kelvin; Rankine; Reaumur|Réaumur"),
    ),
    intent(
        "units.clock_shift",
        """
        what time is it {time} {order} {clock}?
        what's {time} {order} {clock}?
        {time} {order} {clock}
        tell me the time {time} {order} {clock}
        which time do I get if I go {time} {order:way} from {clock}?
        starting at {clock}, what does the clock say {time} {order:adverb}?
        counting from {clock}, what's the time {time} {order:adverb}?
        if I need the time that is {time} {order} {clock}, what is it?
        """,
        time=SHORT_TIMES,
        order=choice(
            "temporal order",
            "before ~way back|backwards ~adverb earlier|before; after ~way ahead|forward ~adverb later|after",
        ),
        clock=CLOCK,
    ),
    intent(
        "units.days_between",
        """
        how many days are there between {first} and {second}, {weekends} weekends?
        number of days from {first} to {second} {weekends} weekends
        [count|work out] the days between {first} and {second}, {weekends} weekends
        {weekends} weekends, how many days lie between {first} and {second}?
        what's the number of days between {first} and {second} {weekends} Saturdays and Sundays?
        I need the days between {first} and {second} counted, {weekends} weekends
        between {first} and {second}, how many days are there {weekends} weekends?
        tell me how many days separate {first} and {second}, {weekends} weekends
        """,
        symmetric="first second",
        first=DATES,
        second=DATES,
        weekends=choice("exception", "with=including|counting; without=excluding|not counting"),
    ),
    intent(
        "units.date_shift",
        """
        what date is {time} {order} {date}?
        which day is it {time} {order} {date}?
        {time} {order} {date}
        [find|work out] the date {time} {order} {date}
        I need to know what date falls {time} {order} {date}
        starting from {date}, which date is it {time} {order:adverb}?
        taking {date} as the start, what would the date be {time} {order:adverb}?
        counting from {date}, what is the date {time} {order:adverb}?
        """,
        time=LONG_TIMES,
        order=choice("temporal order", "before ~adverb earlier|before; after ~adverb later|after"),
        date=DATES,
    ),
    intent(
        "health.dose",
        """
        can {who} take {dose} of {medicine}?
        is {dose} of {medicine} [OK|safe] for {who}?
        {medicine} {dose} {who}
        I'd like to know if {who} is allowed {dose} of {medicine}
        may {who} have {dose} of {medicine} in one go?
        is {dose} an acceptable dose of {medicine} for {who}?
        for {who}, is a(n) {medicine} dose of {dose} all right?
        is it all right for {who} to take {dose} of {medicine} at once?
        """,
        who=choice(
            "aspect",
            "an adult|a grown-up; a child|a kid; a pregnant woman|an expectant mother; an elderly person|a senior; "
            "a teenager|an adolescent; "
            "a breastfeeding mother|a nursing mother",
        ),
        dose=DOSES,
        medicine=MEDICINES,
    ),
    intent(
        "health.meal",
        """
        should I take {medicine} {order} {meal}?
        am I supposed to take {medicine} {order} {meal}?
        {medicine} {order} {meal}?
        my [doctor|physician] gave me {medicine}. Should I take it {order} {meal}?
        is {medicine} meant to be taken {order} {meal}?
        {order} {meal}, is that when I should take {medicine}?
        is it best to [take|swallow] {medicine} {order} {meal}?
        is it [right|correct] that {medicine} is taken {order} {meal}?
        """,
        medicine=MEDICINES,
        order=choice("temporal order", "before; after; during|with"),
        meal=choice("entity", "breakfast; lunch; dinner|supper"),
    ),
    intent(
        "health.fever",
        """
        my {who} has had a fever {comparator} {temp} for {time}. Should we see a [doctor|physician]?
        does a fever {comparator} {temp} for {time} mean my {who} needs a [doctor|physician]?
        fever {comparator} {temp} for {time} {who} see doctor?
        for {time} my {who} has been running a temperature {comparator} {temp}. Is it time for a doctor?
        should my {who} go to the [doctor|physician] with a temperature {comparator} {temp} that has lasted {time}?
        is it necessary to call a [doctor|physician] if my {who} has a fever {comparator} {temp} for {time}?
        {time} of fever {comparator} {temp}: do I have to take my {who} to a doctor?
        my {who}'s temperature has been {comparator} {temp} for {time}, do we need medical help?
        """,
        who=choice(
            "person",
            "baby|infant; toddler; son; daughter; husband; wife; mother|mum|mom; father|dad; grandmother|grandma; "
            "grandfather|grandpa",
        ),
        comparator=choice("comparator", "above|over|higher than; below|under|lower than"),
        temp=FEVERS,
        time=FEVER_TIMES,
    ),
    intent(
        "health.pharmacies",
        """
        do {which} pharmacies in {city} sell {medicine} {paper} a prescription?
        {medicine} {paper} prescription {which} pharmacies {city}?
        is {medicine} sold by {which} pharmacies in {city} {paper} a prescription?
        can I buy {medicine} {paper} a prescription at {which} pharmacies in {city}?
        I'm in {city}. Do {which} [pharmacies|chemists] there sell {medicine} {paper} a prescription?
        is it true that {which} pharmacies in {city} let you have {medicine} {paper} a prescription?
        {paper} a prescription, will {which} pharmacies in {city} sell me {medicine}?
        in {city}, is {medicine} available {paper} a prescription in {which} [pharmacies|chemist's shops]?
        """,
        which=choice("quantifier", "all=all|all of the; some=some|some of the; most=most|most of the"),
        city=CITIES,
        medicine=MEDICINES,
        paper=choice("negation", "with; without"),
    ),
    intent(
        "health.diet",
        """
        name {count} foods to {action} with {condition}
        which {count} foods should I {action} if I have {condition}?
        {condition}: {count} foods to {action}
        I've been diagnosed with {condition}. Tell me {count} foods to {action}
        give me a list of {count} things that people with {condition} should {action}
        what are {count} foods one should {action} when suffering from {condition}?
        for someone with {condition}, list {count} foods to {action}
        can you name {count} foods a person with {condition} ought to {action}?
        """,
        count=SMALL,
        action=choice("antonym", "eat=eat|eat more of; avoid=avoid|stay away from|steer clear of"),
        condition=choice(
            "entity",
            "diabetes; high blood pressure|hypertension; gout; acid reflux|heartburn; anaemia|anemia; kidney stones; "
            "high cholesterol; migraines|migraine; coeliac disease|celiac disease; eczema; arthritis; constipation",
        ),
    ),
    intent(
        "health.exercise",
        """
        how many calories does {time} of {sport} burn for someone {sex} weighing {weight} kg?
        calories burned {time} {sport} {sex} {weight} kg
        I'm {sex}, {weight} kg, and did {time} of {sport}. How many calories did I burn?
        if I'm {sex} and weigh {weight} kilos, what does {time} of {sport} burn in calories?
        for someone {sex} of {weight} kg, how many calories are burned in {time} of {sport}?
        tell me the calories burned by {time} of {sport} if you're {sex} and weigh {weight} kilograms
        what is the calorie burn of {time} of {sport} at {weight} kg, {sex}?
        {time} of {sport} at {weight} kilos, {sex}: how many calories is that?
        """,
        time=SHORT_TIMES,
        sport=choice(
            "entity",
            "swimming; running|jogging; cycling|biking; rowing; yoga; tennis; dancing; skiing; boxing; climbing; "
            "hiking; skating",
        ),
        sex=choice("antonym", "male; female"),
        weight=counts("", "number", [52, 58, 61, 65, 67, 70, 73, 76, 78, 82, 85, 87, 91, 95]),
    ),
)
