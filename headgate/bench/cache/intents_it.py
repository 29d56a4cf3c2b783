"""What people ask an IT desk: accounts, access, settings."""

from __future__ import annotations

from headgate.bench.cache.slots import choice
from headgate.bench.cache.vocabulary import (
    CLOCK,
    COLLEAGUES,
    DATES,
    DAYS,
    DEVICES,
    FEATURES,
    LANGUAGES,
    LONG_TIMES,
    SCREEN_TIMES,
    SERVICES,
    SHORT_TIMES,
    WEEKDAYS,
)
from headgate.bench.cache.wording import Intent, intent

INTENTS: tuple[Intent, ...] = (
    intent(
        "it.reset_password",
        """
        how do I [reset|change] my {service} password on my {device}?
        I need to [reset|change] the password of my {service} account on my {device}
        what are the steps for [resetting|changing] a(n) {service} password using my {device}?
        {service} password [reset|change] {device}
        using my {device}, where do I go to [pick|set|choose] a new {service} password?
        my {service} password has to be [changed|reset]. How is that done on my {device}?
        please help me [set|choose] a new password for {service} on my {device}
        can you [walk|talk] me through a password [change|reset] for {service} on my {device}?
        I'd like a new {service} password. What do I do on my {device} to get one?
        """,
        service=SERVICES,
        device=DEVICES,
    ),
    intent(
        "it.toggle_feature",
        """
        how do I {action} {feature} on my {device}?
        I want to {action} {feature} on my {device}, what should I do?
        where is the setting to {action} {feature} on a(n) {device}?
        {action} {feature} {device}
        steps for {action:ing} {feature} on my {device}
        how can I have {feature} {action:done} on my {device}?
        on my {device}, {feature} should be {action:done}. How do I do that?
        [explain|tell me|show me] how to {action} {feature} on my {device}
        what's the [easiest|quickest|simplest] way of {action:ing} {feature} on a(n) {device}?
        I've got a(n) {device} and I need {feature} {action:done}. [What do I do|How does that work]?
        """,
        action=choice(
            "antonym",
            "on=turn on|enable|switch on|activate ~ing turning on|enabling|switching on|activating "
            "~done turned on|enabled|switched on|activated;"
            "off=turn off|disable|switch off|deactivate ~ing turning off|disabling|switching off|deactivating "
            "~done turned off|disabled|switched off|deactivated",
        ),
        feature=FEATURES,
        device=DEVICES,
    ),
    intent(
        "it.restore_deleted",
        """
        how do I [recover|restore|get back] {what} I [deleted|erased|removed] {time} ago on my {device}?
        I [deleted|erased|removed] {what} on my {device} {time} ago. How do I get them back?
        [recover|restore] {what} deleted {time} ago {device}
        is there a way to [get back|restore|bring back] {what} that were [deleted|removed] from my {device} {time} ago?
        {time} ago I [deleted|erased] {what} from my {device} and now I need them again. What can I do?
        my {device} is missing {what} that I [erased|removed] {time} ago, please help me [restore|recover] them
        what's the procedure for [recovering|restoring] {what} from a(n) {device} if they were deleted {time} ago?
        can {what} [deleted|erased] {time} ago on a(n) {device} be [recovered|restored], and how?
        """,
        what=choice(
            "entity",
            "photos|pictures; emails|e-mails; contacts; text messages|texts; voice memos|voice recordings; bookmarks; "
            "calendar entries|calendar events; downloads|downloaded files",
        ),
        time=LONG_TIMES,
        device=DEVICES,
    ),
    intent(
        "it.lock_account",
        """
        how do I {action} {person}'s {service} account?
        {person} has a(n) {service} account that I have to {action}. [Where|How] do I do that?
        please {action} the {service} account that belongs to {person}
        as an admin, what's the way of {action:ing} {person}'s account in {service}?
        {action} {service} account {person}
        I'm the {service} admin and {person}'s account needs to be {action:done}, how?
        steps for {action:ing} the {service} account of my colleague {person}
        can you tell me how {person}'s {service} account gets {action:done}?
        the {service} account of {person} should be {action:done}, please [tell|show] me how
        """,
        action=choice(
            "antonym",
            "lock=lock|suspend|block ~ing locking|suspending|blocking ~done locked|suspended|blocked;"
            "unlock=unlock|reactivate|unblock ~ing unlocking|reactivating|unblocking "
            "~done unlocked|reactivated|unblocked",
        ),
        person=COLLEAGUES,
        service=SERVICES,
    ),
    intent(
        "it.folder_access",
        """
        how do I {action} {level} access to the {folder} folder for {person}?
        please {action} {level} access for {person} for the {folder} folder
        {level} access to the {folder} folder has to be {action:done} for {person}. What do I click?
        what's the [right way|procedure] for {action:ing} {level} rights on the {folder} folder for {person}?
        {action} {level} permission {folder} folder {person}
        {person} and the {folder} folder: I have to {action} {level} access. How is that done?
        for the {folder} folder, {level} permission should be {action:done} for {person}
        [tell|show] me how {level} access for {person} is {action:done} on the {folder} folder
        """,
        action=choice(
            "antonym",
            "grant=grant|add ~ing granting|adding ~done granted|added;"
            "revoke=revoke|remove|take away ~ing revoking|removing|taking away ~done revoked|removed|taken away",
        ),
        level=choice("aspect", "read=read-only|view-only; edit=edit|write"),
        folder=choice(
            "entity", "finance; marketing; payroll; legal; design; hiring; sales|sales team's; board minutes"
        ),
        person=COLLEAGUES,
    ),
    intent(
        "it.backup_schedule",
        """
        how do I [schedule|plan] a backup of my {device} every {weekday} at {clock}?
        I want my {device} to back itself up every {weekday} at {clock}
        back up {device} weekly {weekday} {clock}
        please make my {device} run its backup at {clock} each {weekday}
        every {weekday} at {clock} there should be a backup of my {device}. How do I [arrange|plan] that?
        can my {device} start a backup [automatically|by itself] each {weekday} at {clock}, and how?
        what do I need to do so that my {device} is backed up every {weekday} at {clock}?
        set the weekly backup of my {device} to {weekday}, {clock}
        """,
        device=DEVICES,
        weekday=WEEKDAYS,
        clock=CLOCK,
    ),
    intent(
        "it.install_for",
        """
        how can I {action} {service} on {person}'s {device}?
        {person} asked me to {action} {service} on a(n) {device}. [How|In what way] is that done?
        {action} {service} on {device} for {person}
        I have to {action} the {service} app for {person}, who uses a(n) {device}
        what are the steps to {action} {service} if {person} has a(n) {device}?
        [show|tell] me the way of {action:ing} {service} on the {device} that {person} uses
        {action:ing} {service} on {person}'s {device}, how does it work?
        please explain how {service} is {action:done} on the {device} of {person}
        """,
        action=choice(
            "antonym",
            "install ~ing installing ~done installed; uninstall|remove|delete ~ing uninstalling|removing|deleting "
            "~done uninstalled|removed|deleted",
        ),
        service=SERVICES,
        person=COLLEAGUES,
        device=DEVICES,
    ),
    intent(
        "settings.mute",
        """
        how do I mute {scope} {person} in {service}?
        I'd like to mute {scope} {person} on {service}
        {service}: mute {scope} {person}
        please [silence|mute] messages from {scope} {person} in {service}
        in {service}, I want notifications from {scope} {person} to be silenced. How?
        is there a way to [silence|mute] {scope} {person} in {service}?
        what should I [press|click] in {service} so that {scope} {person} is muted?
        can {service} be set to [hide|mute] alerts from {scope} {person}?
        """,
        scope=choice(
            "exception",
            "except=everyone except|everybody but|everyone other than|everyone apart from; only=only|just|nobody but",
        ),
        person=COLLEAGUES,
        service=SERVICES,
    ),
    intent(
        "settings.screen_timeout",
        """
        how do I make the screen of my {device} [turn off|go dark] after {time}?
        set the screen timeout of my {device} to {time}
        I want my {device} to [turn off|switch off] its screen after {time} of inactivity
        {device} screen timeout {time}
        where can I set my {device} to [dim and turn off|switch off] the screen once it's been idle for {time}?
        after {time} without use, the display of my {device} should go off. How do I [set|configure] that?
        please tell me how to change the display timeout to {time} on a(n) {device}
        my {device} should wait {time} before the display [turns|switches] off, what do I change?
        """,
        device=DEVICES,
        time=SCREEN_TIMES,
    ),
    intent(
        "settings.away_message",
        """
        how do I set an out-of-office reply in {service} for {time} starting on {day}?
        set up an [auto-reply|automatic reply] in {service} from {day} for {time}
        I'm away for {time} from {day}. How do I make {service} answer automatically?
        {service} out of office {time} from {day}
        starting {day}, {service} should send an [away message|automatic reply] for {time}
        please [turn on|activate] my {service} away message on {day} and keep it for {time}
        I'll be on leave for {time}, beginning {day}; what do I do to get {service} to send an auto-reply?
        can {service} reply automatically for {time} while I'm out, starting {day}?
        """,
        service=SERVICES,
        day=DAYS,
        time=LONG_TIMES,
    ),
    intent(
        "settings.language",
        """
        how do I [change|switch] the language of {service} from {old} to {new}?
        {service} is in {old} and I want it in {new}
        switch {service} from {old} to {new}
        my {service} shows everything in {old}; how can I get it in {new}?
        I'd like to use {service} in {new} instead of {old}, where is that setting?
        {service} display language {old} to {new}
        where can I [set|change] {service} to {new}? It's in {old} at the moment
        please tell me how to move the {service} menus from {old} over to {new}
        the interface of {service} is {old}, but it should be {new}. What do I do?
        """,
        roles="old new",
        service=SERVICES,
        old=LANGUAGES,
        new=LANGUAGES,
    ),
    intent(
        "settings.purge",
        """
        how do I [delete|remove|erase] all {service} messages sent {order} {date}?
        [delete|remove] every message in {service} that was sent {order} {date}
        I want to get rid of all messages {order} {date} in {service}
        {service} delete messages {order} {date}
        all messages that came {order} {date} should be [deleted|erased] from {service}. How can I do that?
        is there a quick way to [erase|delete] whatever was sent {order} {date} in {service}?
        in {service}, how can I clear out messages dated {order} {date}?
        please show me how to [wipe|delete] the {service} messages from {order} {date}
        """,
        service=SERVICES,
        order=choice("temporal order", "before=before|prior to|earlier than; after=after|later than"),
        date=DATES,
    ),
    intent(
        "settings.quiet_hours",
        """
        how do I set quiet hours from {start} to {end} on my {device}?
        I don't want any notifications on my {device} between {start} and {end}
        {device} do not disturb {start} to {end}
        silence my {device} [beginning|starting] at {start} and ending at {end}
        how can I make my {device} stay silent from {start} [until|till] {end}?
        do not disturb should [begin|start] at {start} and [end|stop] at {end} on my {device}
        set my {device} to do not disturb from {start} until {end}, please
        until {end}, beginning at {start}, my {device} should not ring. What do I set?
        """,
        roles="start end",
        device=DEVICES,
        start=CLOCK,
        end=CLOCK,
    ),
    intent(
        "settings.sharing_link",
        """
        how do I make a(n) {service} link that expires after {time} and opens {lock} a password?
        create a(n) {service} sharing link {lock} a password that is valid for {time}
        {service} share link {lock} password, valid {time}
        I need a link from {service} {lock} password protection that stops working after {time}
        can {service} give me a link {lock} a password, good for {time}?
        what are the steps to get a(n) {time:adj} {service} link {lock} a password?
        a(n) {service} link should work for {time} and come {lock} a password. How do I set it up?
        for {time} I want to share a file over {service} {lock} a password, how does that work?
        """,
        service=SERVICES,
        time=SHORT_TIMES,
        lock=choice("negation", "with; without"),
    ),
)
