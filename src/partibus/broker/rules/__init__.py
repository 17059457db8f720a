"""The rules of subscriptions: filters that choose messages, actions that change them.

`descriptions` says what a rule is, `rule_set` compiles and evaluates rules. The language of SQL
filters and actions: `grammar` to `tree`, `compiling` and `actions` to closures. Which
subscriptions there are, and what becomes of the copies, is not known here.
"""
