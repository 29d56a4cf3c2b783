"""What people ask about money."""

from __future__ import annotations

from headgate.bench.cache.slots import choice, counts
from headgate.bench.cache.vocabulary import (
    COMPANIES,
    CURRENCIES,
    LONG_COUNTS,
    MONTHS,
    PEOPLE_FED,
    PRICES,
    RATES,
    SHARES,
    SUMS,
    TERMS,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "finance.interest",
        """
        how much interest does {sum} earn in {time} at {rate} a year?
        if I put {sum} in the bank at {rate} per year, how much interest do I get after {time}?
        interest on {sum} at {rate} for {time}
        what interest will I earn on {sum} over {time} at an annual rate of {rate}?
        I'm saving {sum} at {rate} a year. What interest have I earned after {time}?
        [calculate|work out] the interest on {sum} for {time} with a yearly rate of {rate}
        at {rate} annual interest, how much does {sum} bring in over {time}?
        over {time}, what's the interest on {sum} at {rate} per annum?
        """,
        sum=SUMS,
        rate=RATES,
        time=TERMS,
    ),
    intent(
        "finance.exchange",
        """
        how much is {amount} {old} in {new}?
        convert {amount} {old} to {new}
        {amount} {old} in {new}
        what do I get for {amount} {old} if I change them into {new}?
        I have {amount} {old}. How much is that in {new}?
        [change|exchange] {amount} {old} into {new}
        {amount} {old} are worth how much in {new}?
        expressed in {new}, what are {amount} {old} worth?
        """,
        roles="old new",
        amount=counts("", "number", [15, 20, 35, 50, 75, 80, 120, 150, 200, 250, 300, 400, 650, 900]),
        old=CURRENCIES,
        new=CURRENCIES,
    ),
    intent(
        "finance.tip",
        """
        how much is a(n) {rate} tip on a bill of {sum}, split between {count} people?
        we're {count} people and the bill is {sum}. What does each of us pay for a tip of {rate}?
        {rate} tip on {sum} split {count} ways
        split a(n) {rate} tip on {sum} between {count} people
        the bill comes to {sum} and {count} of us share it. How much is a(n) {rate} tip per person?
        if {count} people share a(n) {rate} tip on {sum}, what does everyone pay towards it?
        what's each person's share of a(n) {rate} tip on {sum} among {count} people?
        [calculate|work out] the tip per person: {count} people, {sum}, {rate}
        """,
        rate=SHARES,
        sum=PRICES,
        count=PEOPLE_FED,
    ),
    intent(
        "finance.trade",
        """
        how do I {action} {count} shares of {company} if the price [goes|moves] {direction} {sum}?
        {action} {count} {company} shares when the price is {direction} {sum}
        I'd like to {action} {count} shares of {company} as soon as they trade {direction} {sum}
        {company} {action} {count} shares price {direction} {sum}
        set up an order to {action} {count} {company} shares once they're {direction} {sum}
        once {company} is {direction} {sum}, I want to {action} {count} shares. How does that work?
        can I place an order to {action} {count} shares of {company} at a price {direction} {sum}?
        please {action} {count} shares of {company}, but only {direction} {sum}
        """,
        action=choice("antonym", "buy|purchase; sell"),
        count=LONG_COUNTS,
        company=COMPANIES,
        direction=choice("comparator", "above|over; below|under"),
        sum=PRICES,
    ),
    intent(
        "finance.expenses",
        """
        show me all {category} expenses {comparator} {sum} in {month}
        which {category} expenses in {month} were {comparator} {sum}?
        {category} expenses {month} {comparator} {sum}
        list what we spent on {category} in {month}, just amounts {comparator} {sum}
        I need the {month} expenses for {category} that are {comparator} {sum}
        in {month}, which costs for {category} came to {comparator} {sum}?
        can you find expenses on {category} of {comparator} {sum} in {month}?
        please pull up {category} costs {comparator} {sum} for {month}
        """,
        category=choice(
            "entity", "travel; catering; software; training; rent; marketing; hardware; office supplies|stationery"
        ),
        comparator=choice("comparator", "over=over|above|more than; under=under|below|less than"),
        sum=PRICES,
        month=MONTHS,
    ),
    intent(
        "finance.loan",
        """
        what is the monthly payment on a(n) {kind}-rate loan of {sum} over {time}?
        how much do I pay per month for a(n) {kind}-rate loan of {sum} that runs for {time}?
        {sum} loan {kind} rate {time} monthly payment
        I want to borrow {sum} for {time} at a(n) {kind} rate. What are the monthly instalments?
        for a loan of {sum} with a(n) {kind} rate and a term of {time}, how much is due each month?
        [calculate|work out] the monthly instalment of a(n) {kind}-rate loan: {sum}, {time}
        if I take out {sum} at a(n) {kind} rate over {time}, how much is due each month?
        over {time}, what would {sum} at a(n) {kind} rate cost me a month?
        """,
        kind=choice("antonym", "fixed; variable|floating"),
        sum=SUMS,
        time=TERMS,
    ),
)
