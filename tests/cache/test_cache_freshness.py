import unicodedata

import pytest

from headgate.cache.freshness import time_sensitive

NOW = """
What is the latest version of Python?
What is the latest news on the election?
What's the latest score?
Who is the current president of France?
What is the current price of gold?
How is the weather in Oslo?
What is the current weather?
What's the current time in Tokyo?
What is the time?
What time is it?
What day is it today?
What's today's date?
What is the date today?
Which movies are playing tonight?
Who is winning right now?
What happened this week?
What is the most recent release of Django?
What are the most recent episodes of the show?
How old is the pope?
What is the exchange rate of the euro?
Is the pharmacy open? I mean, which are open now?
Show me live scores
What is the score of the game?
Is there breaking news?
Which phones are currently the best?
What are recent studies on coffee?
What is the current version of Node?
What is the current population of India?
How many people are currently infected?
Who is the prime minister of Japan?
What is the newest iPhone?
What did the president say yesterday?
What are the current interest rates?
How do I find the latest news in Python?
What is the latest package version?
What are the latest news items?
What is the current value of a bitcoin?
Who holds the current world record?
What are the latest changes to the tax law?
Is the live stream on?
What is the price of gold?
What time does the match start?
What is happening now?
What is the weather in Rome in June?
I have a flight today. Is it delayed?
I placed an order this morning, where is it?
The site is slow today. Why?
My order should arrive today, where is it?
How do I watch the game tonight?
I ordered two days ago. Has it been shipped?
The concert is tomorrow. How do I get there and is it sold out?
What is my current account balance?
What will my plan's current price be?
""".strip().splitlines()

ANY_TIME = """
I woke up ill today. What steps do I need to take to call in sick?
I'm visiting our office in Berlin tomorrow. How do I get on the guest network?
I'll be on holiday next week and want my mail answered. How do I switch that on?
I typed my password wrong too often and now I'm locked out. How do I get back in?
My finger puffed up and now the ring won't come off, how can I remove it?
How many days of leave can I carry over into next year?
How is climate different from weather?
What makes the sky look blue during the day?
At what time of year should roses be cut back?
In winter, what's the time difference between London and Tokyo?
The moment I look away the milk boils over. Why?
Should I accept a counteroffer from my current employer?
I was convicted of something years ago. May I travel?
I missed my connection. What now?
My phone fell into water. What should I do now?
How fast may one drive in wet weather?
What is the highest score possible with three darts?
What is the price of shipping a parcel to Spain?
After what time can I paint the second coat?
What time zone is Denver in?
Which time zone does India use?
How do I undo the most recent commit?
How do I amend my last commit?
How do I see the latest commit in git?
Where does Word keep recent files?
How do I clear my recent searches?
How do I restore recently closed tabs?
What is the time complexity of quicksort?
How do I print the current directory in bash?
What is the current working directory?
How do I rename the current branch?
How do I delete the current line in vim?
How do I get the current user in Django?
How do I highlight the current row in Excel?
How do I get the current year in JavaScript?
How do I format the current date in Python?
How do I get today's date in SQL?
How do I select the rows of last month in SQL?
What does now() return in PostgreSQL?
What is the difference between `now` and `today`?
Where do pandas live?
How long do elephants live?
How do I live with anxiety?
What is a breaking change?
How is a credit score calculated?
What is alternating current?
Is Linux open source?
How old do I have to be to vote?
How old was Mozart when he died?
What was the date of the battle of Hastings?
What is a time signature in music?
How do I get the current URL in React?
""".strip().splitlines()


ELSEWHERE = """
Wie spät ist es jetzt?
Wie wird das Wetter morgen in Köln?
Wer ist derzeit Bundeskanzler?
Quel temps fait-il aujourd'hui ?
Que s'est-il passé hier à Paris ?
Quelle heure est-il à Tokyo ?
¿Qué tiempo hace hoy?
¿Quién es ahora el presidente de Francia?
¿Quién ganó ayer el partido?
Que horas são agora em Lisboa?
Qual é a cotação do dólar hoje?
Che tempo fa oggi a Roma?
Quest'anno chi ha vinto il campionato?
Wat is vandaag het nieuws?
Vad är klockan just nu i Stockholm?
Jaka jest dzisiaj pogoda w Krakowie?
ŞİMDİ SAAT KAÇ?
Bugün hava nasıl?
Какая сегодня погода в Москве?
Який зараз курс долара?
Hôm nay thời tiết thế nào?
Jam berapa sekarang di Jakarta?
ما هو الطقس اليوم في القاهرة؟
ماذا حدث غدًا؟
आज दिल्ली में मौसम कैसा है?
भारत के प्रधानमंत्री अभी कौन हैं।
今天北京天气怎么样？
現在幾點了？
今日の東京の天気は？
今何時ですか？
오늘 서울 날씨는 어때요?
지금은 몇 시예요?
""".strip().splitlines()

ANY_TIME_ELSEWHERE = """
Guten Morgen! Was ist die Hauptstadt von Frankreich?
Was steht hier, und wo ist der Bahnhof?
Combien font deux et deux ?
¿Cuál es la capital de España?
Qual é a capital do Brasil?
Quanti minuti ha un'ora?
Hoeveel is twee plus twee?
Jaka jest stolica Polski?
Türkiye'nin başkenti neresidir?
Какой город является столицей России?
Thủ đô của Việt Nam là gì?
Apa ibu kota Indonesia?
كم لترا من الماء أشرب في اليوم؟
भारत की राजधानी क्या है?
法国的首都是哪里？
フランスの首都はどこですか？
프랑스의 수도는 어디입니까?
What was the agora of Athens?
What did Ayer mean by verification?
How do I get to Hoy by ferry?
What is a wetter climate?
What is the actual cost, and who was Morgan?
""".strip().splitlines()


@pytest.mark.parametrize("text", ELSEWHERE)
def test_a_text_about_now_is_told_in_other_languages(text: str) -> None:
    assert time_sensitive(text)
    assert time_sensitive(unicodedata.normalize("NFD", text))


@pytest.mark.parametrize("text", ANY_TIME_ELSEWHERE)
def test_a_text_that_is_not_about_now_is_none_in_any_language(text: str) -> None:
    assert not time_sensitive(text)


@pytest.mark.parametrize("text", NOW)
def test_a_text_about_now_is_told(text: str) -> None:
    assert time_sensitive(text)


@pytest.mark.parametrize("text", ANY_TIME)
def test_a_text_with_such_words_that_is_not_about_now_is_none(text: str) -> None:
    assert not time_sensitive(text)


@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
def test_blanks_without_end_are_read_once(blank: str) -> None:
    """It would take hours if each were where another clause may begin."""
    assert not time_sensitive(blank * 500_000)
    assert time_sensitive(f"{blank * 500_000}what is the weather today?")
