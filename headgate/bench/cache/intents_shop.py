"""What people ask a shop: orders, refunds, products."""

from __future__ import annotations

from headgate.bench.cache.slots import choice
from headgate.bench.cache.vocabulary import (
    DEVICES,
    GADGETS,
    GOODS,
    LONG_TIMES,
    ORDERS,
    PRICES,
    SHARES,
    SMALL,
    WEEKDAYS,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "orders.track",
        """
        what is the {aspect} of order {order}?
        can you [tell|give] me the {aspect} of my order {order}?
        I ordered something, number {order}, and I'd like to know its {aspect}
        order {order} {aspect}
        [look up|check] the {aspect} for order {order}, please
        for my order {order}, what's the {aspect}?
        I'm [waiting for|expecting] order {order}. Could I have the {aspect}?
        hello, I need the {aspect} of order no. {order:bare}
        """,
        aspect=choice(
            "aspect",
            "arrival=delivery date|arrival date; tracking=tracking number|tracking code; "
            "cost=total price|total cost|total amount; "
            "address=delivery address|shipping address; courier=courier|carrier; weight=parcel weight|package weight",
        ),
        order=ORDERS,
    ),
    intent(
        "orders.change_items",
        """
        how do I {action} {count} {goods} {action:prep} order {order}?
        please {action} {count} {goods} {action:prep} my order {order}
        I'd like to {action} {count} {goods} {action:prep} order {order}
        order {order}: {action} {count} {goods}
        is it possible to {action} {count} {goods} {action:prep} order {order}?
        my order {order} needs a change: {action} {count} {goods}
        could you {action} {count} {goods} {action:prep} the order with the number {order:bare}?
        {count} {goods} should be {action:done} {action:prep} order {order}, can you do that for me?
        """,
        action=choice(
            "antonym",
            "add ~prep to ~done added; remove|take out ~prep from ~done removed|taken out",
        ),
        count=SMALL,
        goods=choice(
            "entity",
            "towels; mugs|coffee mugs; chairs; pillows|cushions; T-shirts|tees; socks|pairs of socks; batteries; "
            "notebooks; "
            "light bulbs|bulbs; plates",
        ),
        order=ORDERS,
    ),
    intent(
        "orders.return_window",
        """
        can I [return|send back] {goods} {receipt} a receipt after {time}?
        is it possible to [return|bring back] {goods} {time} after buying them, {receipt} a receipt?
        return {goods} {receipt} receipt after {time}
        I bought {goods} {time} ago. Can I [return|send back] them {receipt} the receipt?
        after {time}, do you still take back {goods} {receipt} a receipt?
        will you accept returned {goods} {receipt} a receipt {time} after I bought them?
        {time} after the purchase, are {goods} still returnable {receipt} a receipt?
        do you let customers [return|bring back] {goods} {time} after purchase {receipt} a receipt?
        """,
        goods=GOODS,
        receipt=choice("negation", "with; without"),
        time=LONG_TIMES,
    ),
    intent(
        "orders.refund_amount",
        """
        why was I [refunded|paid back] only {sum} for order {order}?
        I got only {sum} back for order {order}, why?
        order {order} refund only {sum} why
        my refund for order {order} is just {sum}. Can you explain that?
        you [returned|refunded] just {sum} for my order {order}. What is the reason?
        for order {order} I received just {sum} back, how come?
        please explain why the refund of order {order} comes to just {sum}
        what's the reason that order {order} was refunded with only {sum}?
        """,
        sum=PRICES,
        order=ORDERS,
    ),
    intent(
        "orders.move_delivery",
        """
        can you move the delivery of order {order} from {old} to {new}?
        please [reschedule|move] order {order} from {old} to {new}
        I'd like order {order} to [come|arrive] on {new} instead of {old}
        my order {order} is coming on {old}, but I need it on {new}
        reschedule delivery order {order} {old} to {new}
        instead of {old}, could order {order} be delivered on {new}?
        order {order} is [due|scheduled] for {old}. How do I change that to {new}?
        I won't be home on {old}, so deliver order {order} on {new}, please
        the delivery of order {order} should be shifted from {old} to {new}
        """,
        roles="old new",
        order=ORDERS,
        old=WEEKDAYS,
        new=WEEKDAYS,
    ),
    intent(
        "orders.discount_scope",
        """
        does the {percent} discount apply to {scope} {goods}?
        is {scope} {goods} {percent} off?
        {percent} discount on {scope} {goods}?
        I have a(n) {percent} voucher. Is it valid for {scope} {goods}?
        can I use the {percent} [code|coupon] for {scope} {goods}?
        is it right that the {percent} [reduction|discount] covers {scope} {goods}?
        you're offering {percent} off: is that for {scope} {goods}?
        tell me whether {scope} {goods} is included in the {percent} sale
        """,
        percent=SHARES,
        scope=choice(
            "exception", "except=everything except|everything but|all stock apart from; only=nothing but|nothing except"
        ),
        goods=GOODS,
    ),
    intent(
        "orders.gift_wrap",
        """
        can order {order} be sent {wrap} gift wrapping by {weekday}?
        please send order {order} {wrap} gift wrap so that it's here by {weekday}
        I need order {order} by {weekday}, {wrap} gift wrapping
        order {order} {wrap} gift wrap by {weekday}
        by {weekday}, could I have order {order} delivered {wrap} gift wrapping?
        would you [ship|send] my order {order} {wrap} gift wrapping and no later than {weekday}?
        {wrap} gift wrapping please for order {order}, and it has to arrive by {weekday}
        is it possible to get order {order} {wrap} gift wrapping on or before {weekday}?
        """,
        order=ORDERS,
        wrap=choice("negation", "with; without"),
        weekday=WEEKDAYS,
    ),
    intent(
        "orders.in_stock",
        """
        are {which} the {goods} in order {order} in stock?
        order {order}: are {which} the {goods} available?
        are {which} the {goods} I put in order {order} available right away?
        order {order} {which} the {goods} in stock?
        can you check if {which} the {goods} from order {order} are in stock?
        I'd like to know whether {which} the {goods} in my order {order} are available
        please tell me if {which} the {goods} of order {order} can be delivered from stock
        is it right that {which} the {goods} in order {order} are in stock?
        """,
        which=choice("quantifier", "all=all of|all; some=some of|a few of; none=none of; most=most of"),
        goods=GOODS,
        order=ORDERS,
    ),
    intent(
        "orders.payment_timing",
        """
        can I pay for {goods} by {method} {order} delivery?
        do you [accept|take] payment by {method} for {goods} {order} delivery?
        paying for {goods} {order} delivery by {method}, is that possible?
        I want to buy {goods} and pay by {method} {order} delivery. Does that work?
        {goods} pay {order} delivery {method}
        is payment by {method} {order} delivery [allowed|possible] if I order {goods}?
        am I able to settle the bill for {goods} {order} delivery by {method}?
        if I order {goods}, may I pay {order} delivery, by {method}?
        """,
        goods=GOODS,
        method=choice(
            "entity",
            "credit card; bank transfer|wire transfer; cheque|check; gift card|gift voucher; invoice; direct debit",
        ),
        order=choice("temporal order", "before=before|prior to|ahead of; after=after|following"),
    ),
    intent(
        "orders.free_shipping",
        """
        what does [shipping|delivery] to {place} cost for orders {comparator} {sum}?
        how much do I pay for [shipping|delivery] to {place} if my order is {comparator} {sum}?
        shipping cost {place} order {comparator} {sum}
        how much is [delivery|shipping] to {place} when I spend {comparator} {sum}?
        my basket is {comparator} {sum}. What does [shipping|delivery] to {place} cost?
        I'm in {place} and my order comes to {comparator} {sum}, what are the shipping costs?
        what do you charge for [delivering|shipping] orders {comparator} {sum} to {place}?
        for {place}, what's the [delivery|shipping] fee on orders {comparator} {sum}?
        """,
        place=choice(
            "entity",
            "the islands; the mainland; Alaska; Hawaii; Northern Ireland; Corsica; Sicily; Greenland; the Azores",
        ),
        comparator=choice("comparator", "over=over|above|more than; under=under|below|less than"),
        sum=PRICES,
    ),
    intent(
        "products.spec",
        """
        what is the {aspect} of the {gadget}?
        can you tell me the {aspect} of the {gadget}?
        {gadget} {aspect}
        I'm thinking of buying the {gadget}. What's its {aspect}?
        [look up|find] the {aspect} of the {gadget} for me
        do you know the {aspect} of the {gadget}?
        about the {gadget}: I'd like to know the {aspect}
        I need information on the {aspect} of the {gadget}
        the {gadget}, what {aspect} does it have?
        """,
        aspect=choice(
            "aspect",
            "battery life|battery runtime; weight; price|retail price; release date|launch date; "
            "warranty period|warranty length; "
            "size; charging time; colour range|color range",
        ),
        gadget=GADGETS,
    ),
    intent(
        "products.cheaper",
        """
        is the {first} cheaper than the {second}?
        is the {second} more expensive than the {first}?
        does the {first} cost less than the {second}?
        does the {second} cost more than the {first}?
        would I pay less for the {first} than for the {second}?
        {first} cheaper than {second}?
        I heard that the {first} is cheaper than the {second}. Is that [true|right|correct]?
        compared with the {second}, is the {first} the cheaper one?
        is it true that the {second} has a higher price than the {first}?
        """,
        roles="first second",
        first=GADGETS,
        second=GADGETS,
    ),
    intent(
        "products.compare",
        """
        which has the better {aspect}, the {first} or the {second}?
        {first} vs {second} {aspect}
        compare the {aspect} of the {first} and the {second}
        how do the {first} and the {second} [compare|differ] in {aspect}?
        between the {first} and the {second}, which one wins on {aspect}?
        I can't decide between the {first} and the {second}. Which is better in terms of {aspect}?
        when it comes to {aspect}, should I choose the {first} or the {second}?
        is the {first} or the {second} the better choice for {aspect}?
        """,
        symmetric="first second",
        first=GADGETS,
        second=GADGETS,
        aspect=choice(
            "aspect",
            "battery life; durability|sturdiness; value for money; repairability|ease of repair; comfort; "
            "build quality",
        ),
    ),
    intent(
        "products.recommend",
        """
        what's the best {thing} {comparator} {sum} for {user}?
        [recommend|suggest] a(n) {thing} for {user} that costs {comparator} {sum}
        best {thing} for {user} {comparator} {sum}
        which {thing} costing {comparator} {sum} would you [recommend|suggest] for {user}?
        I'm looking for a(n) {thing} for {user}, priced {comparator} {sum}. Any ideas?
        my budget for a(n) {thing} is {comparator} {sum}; what should I [get|buy] for {user}?
        for {user}, what {thing} can you recommend that is {comparator} {sum}?
        can you help me find a good {thing} {comparator} {sum} that suits {user}?
        """,
        thing=choice(
            "entity",
            "laptop|notebook computer; camera; bicycle|bike; desk chair|office chair; coffee machine|coffee maker; "
            "tent; backpack|rucksack; "
            "electric guitar; sewing machine; telescope",
        ),
        comparator=choice("comparator", "under=under|below|less than; over=over|above|more than"),
        sum=PRICES,
        user=choice(
            "aspect",
            "beginners|a beginner; professionals|a professional; children|kids; students|a student; "
            "seniors|older people",
        ),
    ),
    intent(
        "products.compatible",
        """
        does the {gadget} work with a(n) {device} {adapter} an adapter?
        can I [connect|hook up] the {gadget} to my {device} {adapter} an adapter?
        is the {gadget} compatible with a(n) {device} {adapter} an adapter?
        {gadget} {device} {adapter} adapter compatible?
        I have a(n) {device}. Will the {gadget} work with it {adapter} an adapter?
        {adapter} an adapter, can the {gadget} be [connected to|used with] my {device}?
        my {device} and the {gadget}: do they work together {adapter} an adapter?
        will I be able to use the {gadget} with my {device} {adapter} an adapter?
        """,
        gadget=GADGETS,
        device=DEVICES,
        adapter=choice("negation", "with; without"),
    ),
    intent(
        "products.warranty",
        """
        is {damage} on the {gadget} covered by the warranty after {time}?
        does the warranty of the {gadget} [cover|include] {damage} after {time}?
        {gadget} warranty {damage} after {time}
        my {gadget} is {time} old and has {damage}. Is that covered?
        after {time}, will you still [fix|repair] {damage} on a(n) {gadget} under warranty?
        I've had the {gadget} for {time} and there's {damage}. Does the guarantee pay for it?
        {damage} appeared on my {gadget} {time} after I bought it, is it under guarantee?
        would the guarantee for the {gadget} pay for {damage} {time} after purchase?
        """,
        damage=choice(
            "aspect",
            "water damage|liquid damage; battery failure|a dead battery; a cracked screen|a broken screen; "
            "speaker damage; rust|corrosion",
        ),
        gadget=GADGETS,
        time=LONG_TIMES,
    ),
)
