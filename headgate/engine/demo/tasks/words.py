"""Slot vocabularies: plain words that the families combine."""

from __future__ import annotations


def listed(words: str) -> tuple[str, ...]:
    """The words of a text, in order."""
    return tuple(words.split())


FIRST_NAMES = listed(
    """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Karen Leo Maria Noah Olivia Paul Quinn Rosa Sam Tina Umar
    Vera Walter Xenia Yusuf Zoe Alice Boris Carmen Daniel Elena Frank Gina Hugo Ines James Kate Liam Mona Nina Oscar
    Peter Rachel Simon Tom Ursula Victor Wendy Lucas Sofia Omar Priya Kenji Mei Ahmed Fatima Ivan Julia Lena Marco Nora
    Pedro Ravi Sara Tariq Lily Max Eva Adam Laura Mark Helen Diego Amara Jonas Freya Ali Yuki Chloe Oliver"""
)
LAST_NAMES = listed(
    """Becker Smith Rossi Tanaka Novak Silva Khan Garcia Jones Miller Brown Weber Lopez Martin Kim Chen Patel Singh
    Kowalski Andersen Larsen Dubois Moreau Costa Haddad Okafor Mensah Nguyen Park Sato Wagner Fischer Keller Young King
    Hill Baker Cook Turner Walker Wright Green Adams Nelson Carter Evans Collins Stewart Morris Rogers"""
)
CITIES = listed(
    """Paris London Berlin Madrid Rome Vienna Oslo Lisbon Dublin Athens Prague Warsaw Boston Chicago Denver Seattle
    Dallas Toronto Montreal Lima Quito Cairo Lagos Nairobi Tunis Mumbai Delhi Tokyo Osaka Kyoto Seoul Hanoi Sydney
    Perth Geneva Munich Hamburg Lyon Milan Naples Porto Seville Krakow Leeds Bristol Austin Miami Phoenix"""
)
JOBS = listed(
    """baker doctor teacher nurse pilot farmer lawyer writer painter singer driver engineer chef waiter plumber
    carpenter librarian gardener dentist tailor butcher photographer scientist journalist architect mechanic
    electrician musician translator accountant"""
)
ANIMALS = listed(
    """cat dog horse cow sheep goat pig duck goose rabbit fox wolf bear lion tiger zebra monkey eagle owl parrot mouse
    turtle snake frog whale shark dolphin camel donkey hamster"""
)
FOODS = listed(
    """apple banana cherry grape lemon orange peach pear plum mango bread cheese butter rice pasta soup salad pizza
    cake honey potato carrot onion tomato bean olive fish egg sugar salt"""
)
THINGS = listed(
    """table chair lamp book pen bottle window door mirror clock phone laptop camera bicycle car train boat kite ball
    guitar piano drum hammer ladder basket blanket pillow candle key coat hat shoe ring box bag bell bridge tower
    garden river mountain island forest desert village market school library museum hotel office kitchen"""
)
COLORS = listed("red blue green yellow black white brown purple pink gray silver golden")
ADJECTIVES = listed(
    """small big old new quiet loud bright dark warm cold soft hard happy sad quick slow heavy light clean dirty young
    brave calm clever gentle proud round sharp sweet strong tiny tall wide narrow fresh strange simple famous"""
)
ADVERBS = listed("slowly quickly quietly often always never today tomorrow again soon early late")
VERBS = listed(
    """sees finds likes wants takes brings keeps buys sells paints cleans opens watches follows carries draws
    holds needs loves makes"""
)
NOUNS = ANIMALS + FOODS + THINGS
LIST_WORDS = ANIMALS + FOODS + COLORS + THINGS[:40]

MONTHS = listed("January February March April May June July August September October November December")
PURCHASES = listed(
    """laptop phone bicycle sofa camera guitar printer table tent heater watch jacket monitor desk fridge mattress
    carpet keyboard scooter telescope"""
)
