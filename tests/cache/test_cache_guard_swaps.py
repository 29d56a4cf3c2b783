"""What changes places, what stands beside what, and what an answer is to look like: near misses that once passed, and
beside them what means the same."""

from __future__ import annotations

import pytest
from verdicts import check


@pytest.mark.parametrize(("kind", "stored", "asked"), [
    # Two things have changed places, however much stands between them.
    ("direction", "It's noon in Quito. What's the time in Oslo?", "It's noon in Oslo. What's the time in Quito?"),
    ("direction", "Compared with Chad, is the army of Mali bigger?", "Compared with Mali, is the army of Chad bigger?"),
    ("direction", "Does Ghana have a longer coast than Togo?", "Does Togo have a longer coast than Ghana?"),
    ("order", "Ghana has a longer coast than Togo, right?", "Compared with Ghana, is the coast of Togo longer?"),
    # Another name stands beside the same time or number.
    ("order", "What time is it in Rome when it is 5 pm in Lima?", "It's 5 pm in Rome. What's the time in Lima?"),
    ("direction", "Does it take 3 eggs from Ann and 5 from Bob?", "Does it take 5 eggs from Ann and 3 from Bob?"),
    # From a first date to a second, from the second to the first.
    ("order", "Can you move my slot from Mon to Thu?", "Instead of Thu, can I have my slot on Mon?"),
    ("direction", "My lesson is on Friday, but I want it on Monday", "Please move my lesson from Monday to Friday"),
    ("direction", "Redirect http to https", "Redirect https to http"),
    ("direction", "Does lime mortar stick to paint?", "Does paint stick to lime mortar?"),
    # Who shows it to whom, who cancelled it.
    ("order", "Does the nurse have to show me a badge?", "Do I have to show a badge to the nurse?"),
    ("order", "My trip was cancelled by the hotel, do I pay?", "I cancelled my trip with the hotel, do I pay?"),
    ("direction", "Compared with a Fiat, is a Skoda cheaper?", "Compared with a Skoda, is a Fiat cheaper?"),
    ("direction", "My radio is in Thai; how can I get it in Malay?", "Switch my radio from Malay to Thai"),
    ("direction", "I want my radio in Thai instead of Malay", "Switch my radio from Thai to Malay"),
    ("direction", "A script that takes CSV and produces XML", "Convert from XML to CSV with a script"),
    ("direction", "Write Jane Austen a letter from Mark Twain", "A letter of Jane Austen to Mark Twain"),
    ("direction", "Can I use thyme in place of sage for soup?", "Will soup do with sage in place of thyme?"),
    ("order", "I am out of thyme. Is sage fine?", "Can I leave sage out and take thyme?"),
    ("order", "Whose forms do I have to sign?", "Who has to sign my forms?"),
    ("order", "It is 5 pm in lima, what is it in Rome?", "My call is at 5 pm Rome time, when is that in Lima?"),
    # Which end comes first, which way it goes.
    ("aspect", "List my files oldest first", "List my files newest first"),
    ("aspect", "Sort an array in descending order", "Sort an array from the smallest to the largest"),
    ("aspect", "When was the fence put up?", "When did the fence come down?"),
    ("aspect", "How many draws did Ajax have in 1990?", "How many defeats did Ajax have in 1990?"),
    ("aspect", "How many goals did they score at home?", "How many goals did they score away?"),
    ("answer", "What is a whisk used for?", "Who first used a whisk?"),
    # A letter goes to Mark, and to mark is something else.
    ("direction", "A letter from Jane to Mark", "A letter from Mark to Jane"),
    # What is measured, and the bound that `exactly` is.
    ("aspect", "Is the area of Laos larger than that of Cuba?", "Does Laos have a larger population than Cuba?"),
    ("aspect", "shelf max weight", "What is the maximum height for a shelf?"),
    ("format", "How tall is Big Ben in cm?", "How tall is Big Ben in inches?"),
    ("comparators", "Pay for exactly 18 months of service", "Pay for more than 18 months of service"),
    ("comparators", "Discount for over 6 months in advance", "Discount for under 6 months in advance"),
    # An answer in another shape.
    ("format", "Explain inflation as a dialogue", "Explain inflation as an email"),
    ("format", "Give me a list of Greek gods", "Give me a table of Greek gods"),
    ("format", "Tell me about Rome in 12 lines", "Tell me about Rome in 12 sentences"),
    ("format", "What do owls eat? Answer with a letter", "What do owls eat? Answer with a list"),
    ("numbers", "Where is a 10-minute parking spot?", "Where is a 10-hour parking spot?"),
    # Beside an event, before it; and hours on, hours back.
    ("temporal", "Do I take zinc before lunch?", "Do I take zinc with lunch?"),
    ("temporal", "Can I quit after my trial period?", "Can I quit in my trial period?"),
    ("temporal", "Which mails were sent prior to May 3rd?", "Which mails were sent later than May 3rd?"),
    ("temporal", "What is 2 hours ahead from 9 am?", "What is 2 hours before 9 am?"),
    ("format", "Explain inflation as a dialogue", "Explain inflation in the form of an email"),
    ("temporal", "What is 3 hours back from 9 am?", "What is 3 hours after 9 am?"),
    ("dates", "When does the bus run on weekdays?", "When does the bus run on Sundays?"),
    ("order", "Which club has Ajax beaten?", "Which club has beaten Ajax?"),
    ("dates", "Is the pool heated in May?", "Is the pool heated in October?"),
    ("dates", "Book the court for Sun 8pm", "Book the court for Tue 8pm"),
    # Nothing but them, everything but them; not doing it.
    ("negation", "Is nothing except shoes on sale?", "Is everything but shoes on sale?"),
    ("negation", "What do toddlers eat in summer?", "What do toddlers refuse to eat in summer?"),
    ("polarity", "Keep all rows longer than 5", "Drop all rows longer than 5"),
    ("polarity", "How many games did they win at home?", "How many games did they win away from home?"),
    # What may, should or must be done, where the words are the same.
    ("statement", "Can I feed bread to ducks?", "Should I feed bread to ducks?"),
    ("statement", "Must I prune roses in June?", "Could I prune roses in June?"),
])  # fmt: skip
def test_what_changes_places_is_another_question(kind: str, stored: str, asked: str) -> None:
    assert check(stored, asked) == kind
    assert check(asked, stored) == kind


@pytest.mark.parametrize(("stored", "asked"), [
    ("Is Ghana's coast longer than Togo's?", "Compared with Togo, is the coast of Ghana longer?"),
    ("Does Ghana have a longer coast than Togo?", "Togo has a shorter coast than Ghana, right?"),
    ("How far is Rome from Lima?", "How far is Lima from Rome?"),
    ("What is 3 times 4?", "What is 4 times 3?"),
    ("It's 5 pm in Rome. What's the time in Lima?", "What time is it in Lima when it is 5 pm in Rome?"),
    ("Can you move my slot from Mon to Thu?", "Instead of Mon, can I have my slot on Thu?"),
    ("Please move my lesson from Friday to Monday", "My lesson is on Friday, but I want it on Monday"),
    ("Pay for exactly 18 months of service", "Pay for 18 months of service"),
    ("Explain inflation as a dialogue", "Explain inflation as a conversation"),
    ("Give me a numbered list of facts about owls", "Give me facts about owls as an enumerated list"),
    ("Where is a 10-minute parking spot?", "Where is a parking spot for 10 minutes?"),
    ("How far should I sit from a 55 inch TV?", "How far should I sit from a 55-inch TV?"),
    ("Which mails were sent prior to May 3rd?", "Which mails were sent before May 3rd?"),
    ("How much does it rain in Oslo during march?", "How much does it rain in Oslo in March?"),
    ("Should I save photos as JPEG or PNG?", "Should I save photos as PNG or JPEG?"),
    ("When does the bus run on weekdays?", "When does the bus run on Tuesdays?"),
    ("How was the ship sunk?", "How did they sink the ship?"),
    ("Will it rain in 3 days?", "Will it rain after 3 days?"),
    ("Is nothing except shoes on sale?", "Are only shoes on sale?"),
    ("How do I keep pasta from sticking?", "How do I stop pasta sticking?"),
    ("How long does a cold last?", "I have a cold. When will it stop?"),
    ("How much rain falls in Lima in July?", "How much rain falls for July in Lima?"),
    ("A letter from Jane to Mark Twain", "A letter from Jane to Twain"),
    ("A note to my boss agreeing to a pay cut", "A note agreeing to a pay cut to my boss"),
    ("Meet Ann on Wed at 14:00", "Meet Ann on Wednesday, starting at 2 pm"),
    ("How many days are there without weekends?", "How many days are there without Saturdays and Sundays?"),
    ("Move it from Saturday to Sun", "Move it from saturday to sun"),
    ("Tell me if all hats apart from caps are sold", "Are all hats sold except caps?"),
    ("Sort a list in Golang", "Sort a list in Go"),
    ("I have a list in R and want to sort it", "Sort a list in R"),
    ("Which planet is hotter: Mars or Venus?", "Which planet is hotter: Venus or Mars?"),
])  # fmt: skip
def test_what_means_the_same_is_not_refused(stored: str, asked: str) -> None:
    assert check(stored, asked) is None
    assert check(asked, stored) is None
