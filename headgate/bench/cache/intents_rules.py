"""What people ask about rules, eligibility and housing."""

from __future__ import annotations

from headgate.bench.cache.slots import choice, counts
from headgate.bench.cache.vocabulary import (
    AGES,
    ANIMALS,
    CITIES,
    CLOCK,
    COUNTRIES,
    DAYS,
    LONG_TIMES,
    PRICES,
    RENTS,
    TERMS,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "rules.age",
        """
        may someone {comparator} {age} {activity} in {country}?
        are people {comparator} {age} allowed to {activity} in {country}?
        {activity} {country} {comparator} {age} allowed?
        is it legal for a person {comparator} {age} to {activity} in {country}?
        in {country}, can you {activity} if you're {comparator} {age}?
        I'm {comparator} {age}. Am I allowed to {activity} in {country}?
        does the law in {country} let people {comparator} {age} {activity}?
        can a person who is {comparator} {age} legally {activity} in {country}?
        """,
        comparator=choice("comparator", "over=over|older than; under=under|younger than"),
        age=AGES,
        activity=choice(
            "entity",
            "rent a car|hire a car; vote; marry|get married; buy fireworks; donate blood|give blood; "
            "adopt a child; drive a lorry|drive a truck; "
            "become a police officer; own a gun|possess a gun; fly a drone",
        ),
        country=COUNTRIES,
    ),
    intent(
        "rules.documents",
        """
        do {who} need {doc} to {purpose}?
        must {who} have {doc} in order to {purpose}?
        {purpose}: {doc} {who} needed?
        is {doc} required of {who} who want to {purpose}?
        to {purpose}, do {who} have to [show|bring] {doc}?
        I want to know whether {who} have to present {doc} to {purpose}
        if {who} want to {purpose}, is {doc} mandatory?
        are {who} obliged to [bring|show] {doc} when they {purpose}?
        """,
        who=choice(
            "quantifier",
            "all=all applicants|all of the applicants; some=some applicants|some of the applicants; "
            "most=most applicants|most of the applicants",
        ),
        doc=choice(
            "entity",
            "a passport; a birth certificate; a driving licence|a driver's license; proof of address; "
            "a bank statement; a work permit; "
            "a vaccination card|a vaccination record; a police certificate",
        ),
        purpose=choice(
            "aspect",
            "open a bank account; register a car; enrol at a university|enroll at a university; "
            "start a business|found a company; rent a flat|rent an apartment; "
            "apply for citizenship",
        ),
    ),
    intent(
        "rules.leave",
        """
        how many days of {kind} leave do {status} employees get if they've worked here for {comparator} {time}?
        with {comparator} {time} of service, how much {kind} leave do {status} staff have?
        {kind} leave {status} employees {comparator} {time}
        I work {status} and have been here for {comparator} {time}. How much {kind} leave do I get?
        what's the {kind} leave entitlement of a(n) {status} employee with {comparator} {time} of service?
        for {status} employees with {comparator} {time} at the company, how many {kind} leave days are there?
        I'd like to know how many days of {kind} leave {status} workers get with {comparator} {time} in the job
        how much {kind} leave am I entitled to if I'm {status} and have {comparator} {time} of service?
        """,
        kind=choice("aspect", "sick|medical; annual|vacation|holiday; parental; study|educational"),
        status=choice("antonym", "full-time; part-time"),
        comparator=choice("comparator", "more than|over; less than|under; exactly"),
        time=TERMS,
    ),
    intent(
        "rules.animals_allowed",
        """
        are {animals} allowed {place} in {country} {licence} a licence?
        can I keep {animals} {place} in {country} {licence} a licence?
        {animals} {place} {country} {licence} licence allowed?
        is it [legal|permitted] to have {animals} {place} in {country} {licence} a licence?
        I live in {country}. May I keep {animals} {place} {licence} a licence?
        does the law of {country} let me have {animals} {place} {licence} a licence?
        in {country}, am I allowed to keep {animals} {place} {licence} a licence?
        does the law in {country} permit keeping {animals} {place} {licence} a licence?
        """,
        animals=ANIMALS,
        place=choice("entity", "in a flat|in an apartment; in the garden|in the yard; on a boat; at school"),
        country=COUNTRIES,
        licence=choice("negation", "with; without"),
    ),
    intent(
        "rules.deadline",
        """
        can I still [apply|register] for the {scheme} {order} {day}?
        is it possible to [apply|register] for the {scheme} {order} {day}?
        {scheme} application {order} {day}?
        my schedule is tight: can my application for the {scheme} come in {order} {day}?
        are applications for the {scheme} accepted {order} {day}?
        will you take an application for the {scheme} if it's sent {order} {day}?
        do you allow people to sign up for the {scheme} {order} {day}?
        if I send my form {order} {day}, can I get into the {scheme}?
        """,
        scheme=choice(
            "entity",
            "student grant; summer camp; housing benefit; language course; start-up fund; car pool; "
            "mentoring programme|mentoring program; "
            "art competition; exchange year; night school",
        ),
        order=choice("temporal order", "before; after"),
        day=DAYS,
    ),
    intent(
        "rules.gift_tax",
        """
        do I pay tax in {country} on a gift of {comparator} {sum} from my {giver}?
        is a gift of {comparator} {sum} from my {giver} taxed in {country}?
        gift tax {country} {comparator} {sum} {giver}
        my {giver} gave me {comparator} {sum}. Do I owe tax on it in {country}?
        in {country}, must I declare a present of {comparator} {sum} from my {giver} to the tax office?
        is tax due in {country} if my {giver} gives me {comparator} {sum}?
        I'm getting {comparator} {sum} as a gift from my {giver}; is that taxable in {country}?
        does {country} [charge|levy] tax on gifts of {comparator} {sum} from a(n) {giver}?
        """,
        country=COUNTRIES,
        comparator=choice("comparator", "over=more than|over; under=less than|under"),
        sum=PRICES,
        giver=choice(
            "person", "father|dad; mother|mum|mom; uncle; aunt; brother; sister; friend; grandparent; cousin; godparent"
        ),
    ),
    intent(
        "rules.noise",
        """
        is it forbidden to {activity} {order} {clock} on Sundays in {city}?
        is there a ban on Sundays in {city} that says you can't {activity} {order} {clock}?
        {city} Sunday {activity} {order} {clock} forbidden?
        in {city}, is it prohibited to {activity} on a Sunday {order} {clock}?
        I live in {city}. Is it against the rules to {activity} {order} {clock} on Sundays?
        would I break the rules in {city} if I {activity} {order} {clock} on a Sunday?
        do the rules of {city} forbid people to {activity} on Sundays {order} {clock}?
        on Sundays {order} {clock}, is it illegal in {city} to {activity}?
        """,
        activity=choice(
            "entity",
            "mow the lawn; play the drums; use a drill; play loud music; wash a car; have a barbecue; "
            "use a leaf blower",
        ),
        order=choice("temporal order", "before; after"),
        clock=CLOCK,
        city=CITIES,
    ),
    intent(
        "housing.rent",
        """
        are there flats in {city} with {comparator} {count} rooms for {sum} a month?
        I'm looking for a flat in {city}: {comparator} {count} rooms, {sum} per month
        flat {city} {comparator} {count} rooms {sum} per month
        can I find an apartment in {city} that has {comparator} {count} rooms for {sum} a month?
        for {sum} a month, is there a flat with {comparator} {count} rooms in {city}?
        show me apartments with {comparator} {count} rooms in {city} at {sum} a month
        my budget in {city} is {sum} per month. Which flats have {comparator} {count} rooms?
        with {sum} a month, what flats of {comparator} {count} rooms can I get in {city}?
        """,
        city=CITIES,
        comparator=choice("comparator", "at least|no fewer than; at most|no more than; exactly"),
        count=counts("", "number", range(2, 7)),
        sum=RENTS,
    ),
    intent(
        "housing.notice",
        """
        can my landlord {action} my rental contract with {time} notice in {country}?
        is a notice of {time} enough for a landlord to {action} a tenancy in {country}?
        {country} landlord {action} tenancy {time} notice
        my landlord wants to {action} my lease in {country} and gives me {time}. Is that legal?
        in {country}, may a landlord {action} a lease with {time} of notice?
        does the law in {country} let landlords {action} a lease by giving {time} notice?
        I rent in {country}. Can the owner {action} the contract if I'm told {time} ahead?
        with {time} of notice, is a landlord in {country} allowed to {action} a rental contract?
        """,
        action=choice("antonym", "end=end|terminate|cancel; extend=extend|renew|prolong"),
        time=LONG_TIMES,
        country=COUNTRIES,
    ),
)
