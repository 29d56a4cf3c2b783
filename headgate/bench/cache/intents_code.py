"""What people ask about programming."""

from __future__ import annotations

from headgate.bench.cache.slots import choice, counts
from headgate.bench.cache.vocabulary import (
    CODE_LANGUAGES,
    FILE_FORMATS,
    LENGTHS_OF_TEXT,
    LONG_COUNTS,
    SHORT_TIMES,
    SMALL,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "code.sort",
        """
        how do I sort a list of {items} by {field} in {direction} order in {lang}?
        sort {items} by {field} {direction} {lang}
        in {lang}, how can I [order|sort] a list of {items} by {field}, {direction}?
        I have a list of {items} in {lang} and want it [sorted|ordered] by {field} in {direction} order
        what's the {lang} code for sorting {items} by {field} in {direction} order?
        show me how {lang} sorts a list of {items} by {field}, {direction}
        write {lang} code that puts {items} in {direction} order of {field}
        please give me a(n) {lang} snippet that [sorts|orders] {items} by {field} in {direction} order
        """,
        items=choice("entity", "users; orders|purchase orders; files; invoices; books; employees"),
        field=choice("aspect", "name; date; price; size; rating; customer number|customer id"),
        direction=choice("antonym", "ascending|increasing; descending|decreasing|reverse"),
        lang=CODE_LANGUAGES,
    ),
    intent(
        "code.convert_file",
        """
        how do I convert {old} to {new} in {lang}?
        convert {old} into {new} with {lang}
        {lang} {old} to {new}
        I have {old} data and need {new}. How do I do that in {lang}?
        write a(n) {lang} script that [turns|converts] {old} into {new}
        in {lang}, what's the [simplest|easiest] way of getting from {old} to {new}?
        using {lang}, how can {old} be [changed|turned] into {new}?
        please show me {lang} code which takes {old} and produces {new}
        """,
        roles="old new",
        old=FILE_FORMATS,
        new=FILE_FORMATS,
        lang=CODE_LANGUAGES,
    ),
    intent(
        "code.file_access",
        """
        how do I {action} a(n) {size} {format} file in {lang} {library} an external library?
        {lang} {action} {size} {format} file {library} library
        in {lang}, how can I {action} {size} {format} files {library} an external library?
        what's the best way to {action} a(n) {size} {format} file with {lang}, {library} an external library?
        I have to {action} a(n) {size} {format} file from {lang} {library} an external library. Any hints?
        show me {lang} code to {action} a(n) {size} {format} file {library} an external library
        please explain how a(n) {size} {format} file is {action:done} in {lang} {library} an external library
        {action:ing} a(n) {size} {format} file in {lang} {library} an external library: how does that work?
        """,
        action=choice(
            "antonym",
            "read|load ~done read|loaded ~ing reading|loading; write|save ~done written|saved ~ing writing|saving",
        ),
        size=choice("aspect", "large|huge|big; small|tiny; compressed|zipped; password-protected"),
        format=FILE_FORMATS,
        lang=CODE_LANGUAGES,
        library=choice("negation", "with=with|using; without=without|without using"),
    ),
    intent(
        "code.regex",
        """
        what regex matches {comparator} {count} {chars} in {lang}?
        write a [regex|regular expression] for {comparator} {count} {chars} in {lang}
        regex {comparator} {count} {chars} {lang}
        in {lang}, how do I match {comparator} {count} {chars} with a regular expression?
        I need a(n) {lang} pattern that matches strings of {comparator} {count} {chars}
        a [regex|regular expression] for {lang}, please, matching {comparator} {count} {chars}
        which regular expression finds runs of {comparator} {count} {chars} in {lang}?
        how would I check in {lang} that a string has {comparator} {count} {chars}, by regex?
        """,
        comparator=choice("comparator", "at least|no fewer than; at most|no more than; exactly|precisely"),
        count=SMALL,
        chars=choice(
            "aspect",
            "digits; letters; spaces; vowels; capital letters|uppercase letters; hex digits|hexadecimal digits",
        ),
        lang=CODE_LANGUAGES,
    ),
    intent(
        "code.filter",
        """
        how do I {action} all numbers {comparator} {count} in a(n) {lang} list?
        {action} numbers {comparator} {count} list {lang}
        in {lang}, how can I {action} the numbers {comparator} {count} in a list?
        I have a list of numbers in {lang} and want to {action} those {comparator} {count}
        write {lang} code to {action} every number {comparator} {count} in a list
        what's the way to {action} list entries {comparator} {count} in {lang}?
        please show me how to {action} each number that's {comparator} {count} in a list, using {lang}
        given a list in {lang}, which code will {action} numbers {comparator} {count}?
        """,
        action=choice("antonym", "drop=remove|delete|drop; keep=keep|retain"),
        comparator=choice("comparator", "greater than|above|larger than; less than|below|smaller than; equal to"),
        count=LONG_COUNTS,
        lang=CODE_LANGUAGES,
    ),
    intent(
        "code.git_undo",
        """
        how do I undo the last {count} commits and {action} the changes if they are {pushed} pushed?
        undo {count} commits in git, {action} the changes, {pushed} pushed
        git undo last {count} commits {action} changes {pushed} pushed
        I've made {count} commits that are {pushed} pushed. How do I undo them and {action} the changes?
        my last {count} commits were wrong. I want to {action} the changes; the commits are {pushed} pushed
        in git, how can I take back {count} commits that are {pushed} pushed, and {action} the changes?
        what git command undoes {count} commits, {pushed} pushed, and will {action} the changes?
        the most recent {count} commits, {pushed} pushed, need to be undone in git. I'd like to {action} the changes
        """,
        count=SMALL,
        action=choice("antonym", "keep=keep|preserve; discard=discard|throw away|lose"),
        pushed=choice("negation", "already; not=not yet|not"),
    ),
    intent(
        "code.timer",
        """
        how do I run a job every {time} in {lang} that {action:s} {count} files at a time?
        {lang} job every {time} {action} {count} files at a time
        I want my {lang} program to {action} {count} files at a time, every {time}
        in {lang}, how can I {action} {count} files in one go every {time}?
        write a(n) {lang} loop that {action:s} {count} files together every {time}
        every {time} my {lang} service should {action} {count} files at once. How do I do it?
        please show me {lang} code to {action} {count} files at a time and repeat that every {time}
        what's the {lang} way of scheduling a task to {action} {count} files at once every {time}?
        """,
        time=SHORT_TIMES,
        lang=CODE_LANGUAGES,
        action=choice(
            "antonym",
            "upload=upload|push up ~s uploads|pushes up; download=download|pull down ~s downloads|pulls down",
        ),
        count=counts("", "number", [5, 8, 10, 12, 15, 20, 25, 30, 40, 50]),
    ),
    intent(
        "code.explain",
        """
        explain {what} in {lang} in {count} sentences
        what should I know about {what} in {lang}? Use {count} sentences
        {lang} {what} {count} sentences
        I'm learning {lang}. Please explain {what} to me in {count} sentences
        using {count} sentences, tell me about {what} in {lang}
        give me {count} sentences on {what} in {lang}
        how would you explain {what} in {lang} with {count} sentences?
        write {count} sentences that explain {what} in {lang}
        """,
        what=choice(
            "entity",
            "variables; loops; functions; error handling|handling errors; modules; testing; comments; arrays; "
            "operators; strings",
        ),
        lang=CODE_LANGUAGES,
        count=LENGTHS_OF_TEXT,
    ),
    intent(
        "code.tests_pass",
        """
        do {which} the tests have to pass before I can {action} a(n) {lang} package?
        can I {action} a(n) {lang} package only if {which} the tests pass?
        {lang} {action} package {which} the tests pass
        before I {action} my {lang} package, must {which} the tests pass?
        is it required that {which} the tests pass before I {action} a(n) {lang} package?
        I want to {action} a(n) {lang} package. Do {which} the tests need to pass first?
        is passing {which} the tests a condition if I want to {action} a(n) {lang} package?
        to {action} a(n) {lang} package, is it necessary that {which} the tests pass?
        """,
        which=choice("quantifier", "all=all of|all; some=some of|at least some of; most=most of; half=half of"),
        action=choice("antonym", "publish=publish|release; withdraw=withdraw|take down"),
        lang=CODE_LANGUAGES,
    ),
)
