"""Slot vocabularies: plain words that the families combine."""

from __future__ import annotations


def listed(words: str) -> tuple[str, ...]:
    """The words of a text, in order."""
    return tuple(words.split())


FIRST_NAMES = listed(
    """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Karen Leo Maria Noah Olivia Paul Quinn Rosa Sam Tina Umar
    Vera Walter Xenia Yusuf Zoe Alice Boris Carmen Daniel Elena Frank Gina Hugo Ines James Kate Liam Mona Nina Oscar
    Peter Rachel Simon Tom Ursula Victor Wendy Lucas Sofia Omar Priya Kenji Mei Ahmed Fatima Ivan Julia Lena Marco Nora
    Pedro Ravi Sara Tariq Lily Max Eva Adam Laura Mark Helen Diego Amara Jonas Freya Ali Yuki Chloe Oliver
    Aaron Abigail Aisha Akira Alan Albert Alex Alma Amir Amy Ana Andrea Angela Anton Arjun Arthur Astrid Aurora Axel
    Ayla Beatrice Bella Bernard Bianca Bjorn Bruno Caleb Camila Carla Carlos Cecilia Celia Charles Chiara Chris
    Colin Cora Dana Darius Deepa Dennis Diana Dmitri Donna Dora Edith Edward Elif Elias Ella Elsa Emil Eric Erik Esther
    Ethan Evan Farid Fiona Flora Florian Gabriel Gemma George Gerda Greta Gustav Hana Hannah Harry Hassan Heidi Hiro Ian
    Ibrahim Ida Igor Ilse Ingrid Irene Isaac Isabel Jacob Jade Jamal Jane Jasmine Javier Jean Jin Joan Joel John Jorge
    Jose Judith Kai Kamal Kaori Katya Kevin Kofi Kurt Kwame Laila Lars Leila Linda Lisa Louis Lucia Luis Luna Lydia
    Magnus Malik Manuel Marta Martha Mary Mateo Matilda Mia Miguel Mila Miriam Mohamed Monica Nadia Naomi Natalie
    Niko Nils Nuria Olga Otto Pablo Paula Petra Philip Pia Rafael Ralph Rana Raul Rebecca Rita Robert Robin Roman
    Ruby Ruth Samira Sandra Sergei Silvia Stella Stefan Sven Tara Tanya Theo Thomas Tobias Uma Viktor Viola
    Wei William Yara Yasmin Yoko Yvonne Zara Zainab"""
)
_NAME_STARTS = listed(
    """Ash Brad Brook Clay Cot Cran Dal Dun Ever Fair Gar Glen Had Hal Harl Hart Hex Kings Lam Lang Lin Long Mar Mil
    North Oak Pem Pres Rad Red Rock Sand Shel Stan Thorn Wal West Whit Win Wood"""
)
_NAME_ENDS = listed("ton ford ley field well worth by stone bridge shaw")
LAST_NAMES = listed(
    """Becker Smith Rossi Tanaka Novak Silva Khan Garcia Jones Miller Brown Weber Lopez Martin Kim Chen Patel Singh
    Kowalski Andersen Larsen Dubois Moreau Costa Haddad Okafor Mensah Nguyen Park Sato Wagner Fischer Keller Young King
    Hill Baker Cook Turner Walker Wright Green Adams Nelson Carter Evans Collins Stewart Morris Rogers Abbas Aguilar
    Ahmadi Alvarez Bauer Bianchi Castillo Chopra Conti Cruz Demir Diallo Eriksson Esposito Ferrari Fernandez Fuchs
    Fujita Gupta Hansen Hernandez Hoffmann Horvat Hussain Ito Ivanov Jensen Kapoor Kaya Kobayashi Kovacs Kruger Laurent
    Lefebvre Lindberg Marino Mehta Mendoza Morales Mwangi Nakamura Nilsson Nowak Olsen Ortiz Osei Pereira Petrov
    Popescu Ramirez Reddy Ricci Romano Ruiz Santos Schmidt Schneider Sharma Sokolov Suzuki Torres Vargas Virtanen
    Watanabe Yamada Yilmaz Zhang Zimmermann"""
) + tuple(start + end for start in _NAME_STARTS for end in _NAME_ENDS)
CITIES = listed(
    """Paris London Berlin Madrid Rome Vienna Oslo Lisbon Dublin Athens Prague Warsaw Boston Chicago Denver Seattle
    Dallas Toronto Montreal Lima Quito Cairo Lagos Nairobi Tunis Mumbai Delhi Tokyo Osaka Kyoto Seoul Hanoi Sydney
    Perth Geneva Munich Hamburg Lyon Milan Naples Porto Seville Krakow Leeds Bristol Austin Miami Phoenix
    Accra Adelaide Algiers Amman Amsterdam Ankara Antwerp Atlanta Auckland Baghdad Baltimore Bangkok Barcelona Basel
    Beijing Beirut Belfast Belgrade Bergen Bern Bilbao Birmingham Bogota Bologna Bonn Bordeaux Bremen Brisbane Brussels
    Bucharest Budapest Busan Calgary Canberra Caracas Cardiff Casablanca Cleveland Cologne Colombo Copenhagen Cordoba
    Dakar Damascus Detroit Doha Dortmund Dresden Dubai Durban Edinburgh Florence Frankfurt Genoa Ghent Glasgow Granada
    Graz Halifax Hamilton Hannover Havana Helsinki Houston Istanbul Izmir Jakarta Kabul Kampala Karachi Kyiv Lahore
    Lausanne Leipzig Lille Liverpool Lucerne Malaga Manchester Manila Marseille Medellin Melbourne Memphis Minsk Mombasa
    Montevideo Nagoya Nantes Nashville Nice Nicosia Odessa Orlando Ottawa Oxford Palermo Philadelphia Portland Pune
    Rabat Riga Rotterdam Salzburg Santiago Sapporo Shanghai Singapore Stockholm Strasbourg Stuttgart Taipei Tallinn
    Tampere Tbilisi Tehran Toulouse Trieste Turin Utrecht Valencia Vancouver Venice Verona Vilnius Winnipeg Zagreb
    Zurich"""
)
JOBS = listed(
    """baker doctor teacher nurse pilot farmer lawyer writer painter singer driver engineer chef waiter plumber
    carpenter librarian gardener dentist tailor butcher photographer scientist journalist architect mechanic
    electrician musician translator accountant actor banker barber builder cashier clerk coach dancer designer detective
    diplomat director editor fisherman florist geologist guard guide historian inspector jeweler judge magician manager
    miner model optician pharmacist philosopher poet postman potter professor programmer sailor sculptor secretary
    shepherd soldier surgeon surveyor trainer welder"""
)
ANIMALS = listed(
    """cat dog horse cow sheep goat pig duck goose rabbit fox wolf bear lion tiger zebra monkey eagle owl parrot mouse
    turtle snake frog whale shark dolphin camel donkey hamster badger beaver bee butterfly crab crocodile crow deer
    elephant falcon gecko giraffe hawk hedgehog hippo kangaroo koala lizard llama lobster mole moose otter panda
    peacock pelican penguin pigeon pony raccoon rat raven seal sparrow spider squirrel swan toad walrus wasp"""
)
FOODS = listed(
    """apple banana cherry grape lemon orange peach pear plum mango bread cheese butter rice pasta soup salad pizza
    cake honey potato carrot onion tomato bean olive fish egg sugar salt apricot avocado bacon biscuit broccoli burger
    cabbage celery chocolate coconut cookie corn cucumber fig garlic ginger ham jam kiwi lentil lettuce lime melon milk
    muffin mushroom mustard noodle nut oat omelette pancake papaya pea pepper pickle pie pineapple pumpkin radish raisin
    sandwich sausage spinach steak strawberry tofu vinegar waffle walnut yogurt"""
)
THINGS = listed(
    """table chair lamp book pen bottle window door mirror clock phone laptop camera bicycle car train boat kite ball
    guitar piano drum hammer ladder basket blanket pillow candle key coat hat shoe ring box bag bell bridge tower
    garden river mountain island forest desert village market school library museum hotel office kitchen
    anchor apron armchair axe backpack balloon bench bowl broom brush bucket bus button cabinet calendar card carpet
    cart chain coin comb cup cupboard curtain cushion desk dress drawer engine envelope fence flag flute fork fountain
    glove hook jacket jar kettle knife lantern letter lock magnet map mug nail napkin needle newspaper notebook oven
    paddle pan pencil pipe plate poster purse radio rope ruler sack saw scarf saucer screw shelf shirt shovel sock
    sofa spoon stamp stool stove suitcase tent ticket towel toy tractor tray truck trumpet umbrella vase
    violin wallet watch wheel whistle"""
)
COLORS = listed("red blue green yellow black white brown purple pink gray silver golden")
ADJECTIVES = listed(
    """small big old new quiet loud bright dark warm cold soft hard happy sad quick slow heavy light clean dirty young
    brave calm clever gentle proud round sharp sweet strong tiny tall wide narrow fresh strange simple famous
    ancient angry bitter broken careful cheap curious deep dry dull eager elegant empty fair fancy fast flat
    friendly funny grand greasy hollow honest huge hungry kind large lazy lonely long lucky modern noisy odd plain
    polite rare rich rough rusty shallow shiny short shy silent smooth sour steep stiff thick thin tidy tired wet wild
    wise wooden"""
)
NOUNS = ANIMALS + FOODS + THINGS

MONTHS = listed("January February March April May June July August September October November December")
PURCHASES = listed(
    """laptop phone bicycle sofa camera guitar printer table tent heater watch jacket monitor desk fridge mattress
    carpet keyboard scooter telescope backpack blender bookcase bracelet chair cupboard drill dishwasher fan freezer
    grill hammock helmet kettle ladder lamp lawnmower microphone microscope mirror mixer necklace piano pillow
    projector radio rucksack saddle skateboard speaker stove suitcase surfboard tablet television toaster treadmill
    trumpet vacuum violin wardrobe wheelchair"""
)
_COMPANY_STARTS = listed(
    """Alder Bluewave Brightleaf Cedar Clearwater Delmar Eastgate Falcon Granite Greenfield Harbor Ironwood Juniper
    Kestrel Lakeside Meridian Nordic Orbit Pinecrest Quantum Redstone Silverline Summit Tandem Vertex Westwind"""
)
COMPANIES = listed(
    """Acmera Bexton Corvia Dynalux Evorix Fintra Glowbit Hexacor Inovex Jentra Kaldera Lumora Maxora Nexfield Optora
    Pexley Quorra Ravico Soltera Trivex Unitra Veltor Wexham Xentro Yalda Zentora"""
) + tuple(
    f"{start} {end}"
    for place, start in enumerate(_COMPANY_STARTS)
    for end in (("Foods", "Systems"), ("Motors", "Books"), ("Labs", "Tools"), ("Energy", "Travel"))[place % 4]
)
