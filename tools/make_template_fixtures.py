#!/usr/bin/env python3
"""Renders single constructs of chat templates with Jinja2 as Hugging Face transformers sets it up.

Each construct is a separate template. Its output, or `null` for an error of any kind, goes to
crates/text/tests/fixtures/template_constructs.json. crates/text/tests/template_constructs.rs renders the same templates.
Constructs whose result differs from run to run (addresses of objects, `random`, `lipsum`) are left out.

    python tools/make_template_fixtures.py

Needs the packages `transformers` (5.24) and `jinja2` (3.1.6), and Python 3.11 or newer.
"""

import copy
import datetime
import json
import re
import warnings
from pathlib import Path

import transformers.utils.chat_template_utils as chat

OUT = Path(__file__).resolve().parent.parent / "crates/text/tests/fixtures/template_constructs.json"

VARIABLES = {
    "none_value": None, "yes": True, "n": 3, "x": 2.5, "big": 12345678901234567890, "s": "Hello World", "empty": "",
    "text": "  first line\n\nsecond-line has words\r\nthird\t<b>&</b>  ", "uni": "Straße İstanbul ΣΑΣ ǆ ﬁ é e\u0301 我 🦙\u200d\u00a0",
    "l": [3, 1, 2], "words": ["b", "A", "c", "a", "B"], "nested": [[1, [2, "it's"]], {"k": [None, True, 1.5]}], "nothing": [],
    "d": {"b": 1, "a": {"x": "y"}, "C": [1, 2]}, "items_key": {"items": [1], "keys": 2, "get": 3, "x-y": 4}, "numbers": {"1": "one", "two": 2},
    "users": [
        {"name": "Bob", "age": 31, "city": {"zip": "b1"}}, {"name": "alice", "age": 25, "city": {"zip": "A2"}},
        {"name": "Bob", "age": 25, "city": {"zip": "a2"}, "admin": True},
    ],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello <&>"}, {"role": "assistant", "content": None}],
    "tools": None, "add_generation_prompt": True, "bos_token": "<s>",
}

# An afternoon in the last days of a year.
NOW = datetime.datetime(2024, 12, 30, 15, 4, 5, 678)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def methods():
    texts = ["s", "text", "empty", "uni", "'a,b,,c'", "'xxabxx'", "'42'", "'ab'", "'AB cd'", "'a-b_c1'", "'1½²'", "'__x'", "'ﬁne'"]
    for method in ("upper lower capitalize casefold swapcase title isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric "
                   "isprintable isspace istitle isupper split rsplit splitlines strip lstrip rstrip expandtabs").split():
        for text in texts:
            yield f"{{{{ {text}.{method}() }}}}"
    calls = """
        center(9) center(10) center(8,'*') ljust(7) ljust(7,'-') rjust(7) rjust(7,'é') zfill(7) zfill(1) zfill() center() ljust(3,'ab')
        count('x') count('x',1) count('x',1,3) count('') count('',2) find('x') find('b') find('b',2) find('x',-2) find('x',-3,-1) find('q') find('',9) find('',2)
        rfind('x') rfind('x',0,2) index('b') index('q') rindex('x') rindex('q') startswith('x') startswith(('a','x')) startswith(['x'])
        startswith('a',2) startswith('a',2,3) startswith('') endswith('x') endswith(('b','x')) endswith('b',0,4) startswith(1) endswith('x',9)
        partition('ab') partition('q') partition('') rpartition('x') rpartition('q') replace('x','y') replace('x','y',1) replace('','-') replace('x','',2)
        replace('x') replace('x','y',count=1) removeprefix('xx') removeprefix('b') removesuffix('xx') removesuffix('') removeprefix(1)
        strip('x') lstrip('x') rstrip('xb') strip('') strip(none) strip(chars='x') split('a') split('a',1) split('x',1) split(sep='b') split(sep='x',maxsplit=2)
        split(none,1) split(maxsplit=1) split('') split(1) rsplit('x',1) rsplit(none,1) rsplit(sep='x',maxsplit=2) join(['1','2']) join('abc') join([1]) join([]) join(d)
        format() encode format_map({'a':1}) translate({120:'y'}) translate({120:none,97:98}) isdigit(1) upper(1) nosuch() nosuch __class__ __len__
    """.split()
    for call in calls:
        if call != "encode":
            yield f"{{{{ 'xxabxx'.{call} }}}}"
    yield from """{{ 'a b  c d '.split(none, 1) }}|{{ ' a b  c d '.rsplit(none, 1) }}|{{ 'a  b c'.split(' ') }}|{{ ' a b c '.split(maxsplit=0) }}
        {{ 'a\\nb\\r\\nc\\x0bd\\u2028e\\x1cf'.splitlines() }}|{{ 'a\\nb\\r\\n'.splitlines(true) }}|{{ 'a\\n\\n'.splitlines(keepends=true) }}
        {{ 'a\\tbc\\td'.expandtabs(4) }}|{{ 'a\\tb'.expandtabs(tabsize=2) }}|{{ 'a\\tb'.expandtabs(0) }}|{{ 'ab'.maketrans('ab', 'cd') }}|{{ 'abz'.translate('ab'.maketrans('ab', 'cd', 'z')) }}
        {{ '-7'.zfill(5) }}{{ '+7'.zfill(5) }}{{ '--7'.zfill(5) }}|{{ 'İ'.lower()|length }}{{ 'ΑΣ'.lower() }}{{ 'ß'.upper() }}{{ 'ǆx'.title() }}{{ "it's a dog's".title() }}
        {{ 'Straße ΣΑΣ ſ'.casefold() }}|{{ 'ßx'.capitalize() }}|{{ 'aΣ bΣ'.swapcase() }}|{{ '１２'.isdigit() }}{{ '²'.isdecimal() }}{{ '²'.isdigit() }}{{ '½'.isnumeric() }}{{ '四'.isnumeric() }}
        {{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abc'[5] }}|{{ 'abc'['upper']() }}|{{ 'abc'.0 }}|{{ 'ab'.upper is callable }}|{{ 'é'|length }}{{ '🦙'|length }}
        {{ l.index(2) }}|{{ l.index(9) }}|{{ [1, 2, 1].index(1, 1) }}|{{ [1, 2, 1].count(1) }}|{{ [1, true, 1.0].count(1) }}|{{ l.copy() }}
        {{ l.append(4) }}|{{ l.append is defined }}|{{ l.pop() }}|{{ l.sort }}|{{ l.reverse }}
        {{ d.pop('b') }}|{{ d.update({}) }}|{{ d.setdefault('q', 1) }}|{{ d.clear is defined }}
        {{ d.get('b') }}|{{ d.get('q') }}|{{ d.get('q', 7) }}|{{ d.get() }}|{{ d.get('q', default=7) }}|{{ d.get([1]) }}
        {{ d.items() }}|{{ d.keys() }}|{{ d.values() }}|{{ d.copy() }}|{{ d.keys()|list }}|{{ d.keys()[0] }}|{{ d.items()|list }}|{{ d.keys()|length }}|{{ 'b' in d.keys() }}{{ ('b', 1) in d.items() }}
        {{ (1, 2, 1).count(1) }}{{ (1, 2).index(2) }}|{{ range(5).index(3) }}{{ range(5).count(9) }}|{{ range(1, 9, 3).start }}{{ range(1, 9, 3).stop }}{{ range(1, 9, 3).step }}
        {{ (255).bit_length() }}|{{ (5).real }}{{ (5).imag }}{{ (5).numerator }}{{ (5).denominator }}{{ (5).conjugate() }}|{{ (7).as_integer_ratio() }}|{{ true.real }}
        {{ (2.0).is_integer() }}{{ (2.5).is_integer() }}|{{ (2.5).as_integer_ratio() }}{{ (2.5).real }}{{ (2.5).imag }}|{{ (0.1).as_integer_ratio() }}
        {{ items_key.items }}{{ items_key['items'] }}|{{ items_key.items is defined }}{{ items_key['keys'] }}{{ items_key['x-y'] }}|{{ items_key['get'] }}
        {{ d.b }}{{ d['b'] }}{{ d.q }}{{ d['q'] }}{{ d.a.x }}{{ d['a']['x'] }}|{{ d.q.r }}|{{ numbers['1'] }}{{ numbers[1] }}{{ numbers.1 }}""".replace("|{{ items_key", "\n{{ items_key").split("\n")
    for piece in """{{ l.index(9) }} {{ l.append(4) }} {{ l.pop() }} {{ d.pop('b') }} {{ d.update({}) }} {{ d.get() }} {{ d.get([1]) }} {{ d.q.r }} {{ s.__class__ }}x
        {{ s.__class__.x }} {{ s.__class__() }} {{ l.__len__() }} {{ d.__class__ }} {{ d.setdefault('q',1) }} {{ d.keys()[0] }} {{ 'ab'.nosuch }} {{ 'ab'.nosuch.x }}""".split(" {{"):
        yield piece.strip() if piece.strip().startswith("{{") else "{{ " + piece.strip()


def operators():
    operands = ["0", "1", "-7", "2", "2.5", "-0.5", "true", "'ab'", "''", "'3'", "[1, 'ab']", "(1, 2)", "{'ab': 1}", "none", "missing"]
    for op in "+ - * / // % ** ~ == != < <= > >= in".split() + ["not in", "and", "or"]:
        for left in operands:
            for right in operands:
                yield f"{{{{ {left} {op} {right} }}}}"
    for operand in operands:
        yield f"{{{{ -{operand} }}}}{{{{ +{operand} }}}}"
        yield f"{{{{ not {operand} }}}}"
        yield f"{{{{ {operand} }}}}{{{{ [{operand}] }}}}{{{{ ({operand},) }}}}"
        yield f"{{{{ 'x' if {operand} else 'y' }}}}{{% if {operand} %}}1{{% endif %}}"
        yield f"{{% for i in {operand} %}}[{{{{ i }}}}]{{% else %}}none{{% endfor %}}"
    yield from """{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 3 > 2 == 2 }}|{{ 2 ** 3 ** 2 }}|{{ -2 ** 2 }}|{{ 2 ** -1 }}|{{ 7 // -2 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ -7.5 // 2 }}{{ 7.5 % -2 }}
        {{ 1 + 2 * 3 - 4 / 2 }}|{{ (1 + 2) * 3 }}|{{ 1 ~ 2 + 3 }}|{{ 'a' ~ none ~ true ~ 1.0 ~ [1, 'x'] ~ missing }}|{{ 1 - -1 }}|{{ 10 // 3 * 3 }}
        {{ not 1 == 2 }}|{{ not (1 and 0) }}|{{ 1 and 'x' or 'y' }}|{{ 0 or '' or none }}|{{ [] and 1 }}|{{ 1 is number and not 2 is string }}
        {{ 0.1 + 0.2 }}|{{ 1e16 }}|{{ 1e15 }}|{{ 1.5e-5 }}|{{ 1e22 }}|{{ 123456789.125 }}|{{ 1/3 }}|{{ 100 / 10 }}|{{ 1e308 * 10 }}|{{ -0.0 }}|{{ 5e-324 }}
        {{ 9007199254740993 }}|{{ big }}|{{ big + 1 }}|{{ 2 ** 100 }}|{{ 0x1F }}{{ 0b101 }}{{ 0o17 }}{{ 1_000 }}{{ 1_0.5 }}|{{ 1.0 == 1 }}{{ true == 1 }}{{ 'a' == 1 }}
        {{ [1, 2] == [1, 2.0] }}{{ (1,) == [1] }}{{ {'a': 1} == {'a': true} }}|{{ [1, 2] < [1, 3] }}{{ [1] < [1, 0] }}{{ 'B' < 'a' }}{{ (1, 2) < (1, 3) }}|{{ [1] < ['a'] }}
        {{ 'ab' * 3 }}{{ 3 * 'ab' }}{{ 'ab' * -1 }}{{ [1] * 2 }}{{ (1,) * 2 }}|{{ 'ab' * 1.5 }}|{{ true + true }}{{ true * 'x' }}|{{ none is none }}
        {{ 'x' 'y' "z" }}|{{ "a\\tb\\n\\x41\\u00e9\\U0001F999\\101\\q\\\\" }}|{{ 'it\\'s' }}|{{ ['\\t\\x01é\\u200b"', "'", '\\'"'] }}|{{ ['\\xa0\\xad\\ud7ff\\ue000'] }}
        {{ l[0] }}{{ l[-1] }}{{ l[9] }}{{ l['a'] }}{{ l[1.0] }}{{ l[true] }}|{{ l[1:] }}{{ l[:1] }}{{ l[::-1] }}{{ l[-2:] }}{{ l[::2] }}{{ l[5:] }}{{ l[2:0:-1] }}{{ l[none:2] }}
        {{ s[1:4] }}{{ s[::-1] }}{{ s[-3:] }}{{ s[:-3] }}{{ s[::3] }}|{{ uni[7:9] }}|{{ (1, 2, 3)[1:] }}{{ range(9)[2:8:2] }}|{{ range(5)[1] }}{{ range(5)[9] }}|{{ l[::0] }}|{{ l['a':] }}|{{ d[1:] }}
        {{ d[[1]] }}|{{ {}['a'] }}|{{ {1: 2}[1] }}{{ {1: 2}[1.0] }}{{ {true: 2}[1] }}|{{ {'a': 1, 'a': 2} }}|{{ {[1]: 2} }}|{{ {(1, 2): 3}[(1, 2)] }}{{ {(1, 2): 3}[1, 2] }}
        {{ 1 if false }}|{{ (1 if false) is defined }}|{{ 'a' if 0 else 'b' if 0 else 'c' }}|{{ 1, 2 }}|{{ 1, }}|{{ () }}|{{ [1, 2, ] }}|{{ {'a': 1, } }}
        {{ missing }}|{{ missing.x }}|{{ missing['x'] }}|{{ missing() }}|{{ missing|length }}|{{ missing|list }}|{{ missing + 1 }}|{{ missing ~ 1 }}|{{ missing == missing2 }}|{{ missing < 1 }}
        {{ missing[1:] }}|{{ [missing] }}|{{ -missing }}|{{ missing in [1] }}|{{ 1 in missing }}|{{ missing is sequence }}{{ missing is iterable }}{{ missing is callable }}{{ missing is mapping }}
        {{ d.missing.x }}|{{ d.missing is defined }}|{{ messages[9] is defined }}|{{ messages[9].role is defined }}|{{ none.x }}|{{ none.x is defined }}|{{ none_value.x.y }}
        {{ x.y }}|{{ 1 .real }}|{{ 1.5.real }}|{{ l.0 }}|{{ 'abc'() }}|{{ s.upper }}x|{{ (s).upper() }}|{{ -1|abs }}|{{ 1 + -1|abs }}|{{ 'a'|upper ~ 'b'|upper }}|{{ 2 * 'x'|length }}""".split("\n")


def filters():
    inputs = ["s", "empty", "text", "l", "nothing", "d", "n", "x", "none_value", "missing", "yes", "words", "(2, 1)", "range(3)", "'7'", "'<a&\"b\\'>'"]
    for name in ("abs capitalize center count d default dictsort e escape filesizeformat first float forceescape format int items|list join last length list lower max "
                 "min pprint reject|list replace reverse|list round safe select|list sort string striptags sum title tojson trim unique|list upper urlencode "
                 "wordcount wordwrap xmlattr batch(2)|list slice(2)|list indent truncate(5) groupby(0) map('upper')|list").split():
        for value in inputs:
            yield f"{{{{ {value}|{name} }}}}"
    yield from """{{ -5|abs }}{{ -2.5|abs }}|{{ l|attr('count') is callable }}{{ d|attr('b') }}{{ d|attr('b') is defined }}|{{ missing|attr('x') }}
        {{ range(7)|batch(3)|list }}{{ range(7)|batch(3, 'x')|list }}{{ range(7)|batch(linecount=3, fill_with=0)|list }}{{ l|batch(0)|list }}|{{ l|batch('a')|list }}
        {{ range(7)|slice(3)|list }}{{ range(7)|slice(3, 'x')|list }}{{ l|slice(slices=5)|list }}|{{ l|slice(0)|list }}
        {{ 'ab'|center(5) }}|{{ 'ab'|center(width=6) }}|{{ 'ab'|center(5, '-') }}|{{ missing|default('x') }}{{ missing|d }}{{ ''|default('x') }}{{ ''|default('x', true) }}{{ none|default('x') }}{{ none|default('x', boolean=true) }}{{ missing|default(default_value=1) }}
        {{ d|dictsort }}{{ d|dictsort(true) }}{{ {'b': 1, 'a': 2}|dictsort(false, 'value') }}{{ {'b': 1, 'a': 2}|dictsort(by='value', reverse=true) }}{{ {'b': 'x', 'A': 'X'}|dictsort(by='value') }}|{{ d|dictsort(by='x') }}|{{ {1: 2, 'a': 3}|dictsort }}
        {{ '<a>'|e }}{{ '<a>'|e|e }}{{ '<a>'|escape ~ '<b>' }}{{ '<a>'|e + '<b>' }}{{ '<a>'|safe + '<b>' }}{{ '<a>'|safe|e }}{{ '<'|e|forceescape }}{{ '<'|e|length }}{{ ['<'|e] }}{{ '<%s>'|safe % '<' }}{{ '<'|e|upper }}{{ '<'|e is escaped }}{{ '<'|e|replace('&', '<') }}{{ [1]|e }}
        {{ 100|filesizeformat }}{{ 1|filesizeformat }}{{ 1500|filesizeformat }}{{ 1500|filesizeformat(true) }}{{ 12345678901|filesizeformat }}{{ '1e30'|filesizeformat(binary=true) }}{{ -5|filesizeformat }}|{{ 'x'|filesizeformat }}
        {{ 'abc'|first }}{{ 'abc'|last }}{{ []|first }}{{ []|first is defined }}{{ l|first }}{{ l|last }}{{ d|first }}{{ d|last }}{{ (l|select|first) }}|{{ l|select|last }}|{{ 5|first }}
        {{ '3.7'|float }}{{ 'x'|float }}{{ 'x'|float(1.5) }}{{ 'x'|float(default=none) }}{{ 'inf'|float }}{{ ' 1_0 '|float }}{{ none|float }}{{ 3|float }}{{ '1e3'|float }}{{ '.5'|float }}{{ '5.'|float }}|{{ missing|float }}
        {{ '%s-%d-%05.1f'|format('a', 3, 2.25) }}{{ '%(a)s'|format(a=1) }}{{ '%s'|format(none) }}{{ 'x'|format }}|{{ 'x'|format(1) }}|{{ '%s'|format }}|{{ '%s'|format(1, a=2) }}|{{ 5|format }}
        {{ users|groupby('name') }}|{{ users|groupby('city.zip')|map('first')|list }}{{ users|groupby('name', case_sensitive=true)|map(attribute='grouper')|list }}{% for g, u in users|groupby('age') %}{{ g }}:{{ u|length }};{% endfor %}{% for g in users|groupby('admin', default=false) %}{{ g.grouper }}={{ g.list|length }}{{ g[0] }};{% endfor %}|{{ users|groupby('admin') }}
        {{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb\\n\\nc'|indent(2, true) }}|{{ 'a\\nb\\n\\nc'|indent(2, first=true, blank=true) }}|{{ 'a\\nb'|indent('> ') }}|{{ 'a\\nb'|indent(width='> ', first=true) }}|{{ 'a\\n'|indent(3) }}|{{ 'a\\r\\nb'|indent(1) }}|{{ 'a\\nb'|indent(0) }}|{{ 'a\\nb'|indent(-1) }}|{{ 5|indent }}|{{ 'a\\nb'|indent(2000)|length }}
        {{ '42.23'|int }}{{ 'x'|int }}{{ 'x'|int(7) }}{{ 'x'|int(default=none) }}{{ '1f'|int(0, 16) }}{{ '0x1f'|int(base=16) }}{{ '0b11'|int(0, 2) }}{{ '0x1f'|int(0, 0) }}{{ 3.9|int }}{{ -3.9|int }}{{ ' 5 '|int }}{{ '1_000'|int }}{{ '--5'|int }}{{ '1e3'|int }}{{ none|int }}{{ []|int(2) }}{{ true|int }}{{ '+5'|int }}|{{ missing|int }}|{{ 'inf'|float|int }}
        {{ l|join }}{{ l|join(', ') }}{{ l|join(d='-') }}{{ users|join('; ', attribute='name') }}{{ [1, none, true, 1.5, [2]]|join('|') }}{{ 'abc'|join('-') }}{{ d|join(',') }}{{ l|join(1) }}{{ users|join(attribute='city.zip') }}|{{ 5|join }}|{{ none|join }}
        {{ l|length }}{{ 'é'|length }}{{ d|length }}{{ range(4)|length }}{{ d.items()|length }}|{{ 5|length }}|{{ none|length }}|{{ l|select|length }}
        {{ words|map('upper')|join }}{{ users|map(attribute='name')|list }}{{ users|map(attribute='admin', default=0)|list }}{{ users|map(attribute='admin')|list }}{{ words|map('replace', 'a', 'x')|list }}{{ [[1, 2], [3]]|map('join', '-')|list }}{{ [[1, 2], [3]]|map(attribute=0)|list }}{{ ['a']|map('default', 'x')|list }}{{ [1.5]|map('round', method='floor')|list }}|{{ l|map|list }}|{{ l|map('nosuch')|list }}|{{ l|map(attribute='a', x=1)|list }}|{{ none|map('upper')|list }}|{{ 5|map('upper')|list }}
        {{ l|max }}{{ l|min }}{{ words|max }}{{ words|min }}{{ words|max(true) }}{{ words|min(case_sensitive=true) }}{{ users|max(attribute='age') }}{{ users|min(attribute='name') }}{{ []|max }}{{ []|max is defined }}|{{ [1, 'a']|max }}
        {{ {'b': 1, 'a': ['x' * 30, 'y' * 30, {'z': 'w' * 20}]}|pprint }}|{{ ('word ' * 30)|pprint }}|{{ range(40)|list|pprint }}|{{ 'a\\nb'|pprint }}|{{ {'k': 'word ' * 25}|pprint }}|{{ ('a' * 90,)|pprint }}|{{ none|pprint }}
        {{ l|reject('odd')|list }}{{ l|select('odd')|list }}{{ [0, 1, '', 'a', none]|select|list }}{{ [0, 1, '']|reject|list }}{{ l|select('>', 1)|list }}{{ l|select('divisibleby', 2)|list }}{{ [1, 'a', none]|reject('string')|list }}{{ l|select('in', [1, 2])|list }}|{{ l|select('nosuch')|list }}
        {{ users|selectattr('admin')|list|length }}{{ users|rejectattr('admin')|list|length }}{{ users|selectattr('age', 'equalto', 25)|map(attribute='name')|list }}{{ users|selectattr('name', '==', 'Bob')|list|length }}{{ users|selectattr('city.zip', 'eq', 'b1')|list|length }}{{ users|rejectattr('age', 'gt', 30)|list|length }}{{ users|selectattr('admin', 'defined')|list|length }}{{ users|selectattr('age', 'in', [31])|list|length }}{{ [[1, 2], [0, 3]]|selectattr(0)|list }}|{{ users|selectattr|list }}
        {{ 'aXbX'|replace('X', 'y') }}{{ 'aXbX'|replace('X', 'y', 1) }}{{ 'aXbX'|replace(old='X', new='', count=1) }}{{ 'ab'|replace('', '-') }}{{ 123|replace(2, 5) }}|{{ 'a'|replace('a') }}
        {{ 'abc'|reverse }}{{ l|reverse|list }}{{ (l|select)|reverse }}{{ d|reverse|list }}{{ range(3)|reverse|list }}|{{ 5|reverse }}
        {{ 42.55|round }}{{ 42.55|round(1, 'floor') }}{{ 42.55|round(1, 'ceil') }}{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 1234|round(-2) }}{{ 1250|round(-2) }}{{ 1234.5|round(-2) }}{{ 42|round }}{{ 42|round(1) }}{{ -2.5|round }}{{ 42|round(0, 'floor') }}{{ 42.4|round(method='ceil') }}{{ true|round }}{{ 0.5|round|int }}|{{ 'a'|round }}|{{ 1|round(method='x') }}
        {{ words|sort }}{{ words|sort(true) }}{{ words|sort(case_sensitive=true) }}{{ words|sort(reverse=true, case_sensitive=true) }}{{ users|sort(attribute='age')|map(attribute='name')|list }}{{ users|sort(attribute='age,name')|map(attribute='name')|list }}{{ users|sort(true, attribute='city.zip')|map(attribute='name')|list }}{{ d|sort }}{{ 'bca'|sort }}{{ [[2, 'a'], [1, 'b']]|sort }}{{ [[2], [1]]|sort(attribute=0) }}|{{ [1, 'a']|sort }}|{{ [none, 1]|sort }}
        {{ [1, 2]|string }}{{ 1.0|string }}{{ none|string }}{{ missing|string }}{{ true|string ~ 1 }}|{{ '<b>x</b> <!-- c -->  y\\n&amp;&lt;&#65;&#x42;&nbsp;z'|striptags }}|{{ [1, 2, 3]|sum }}{{ [1.5, 2]|sum }}{{ [[1], [2]]|sum(start=[]) }}{{ users|sum(attribute='age') }}{{ users|sum('age', 100) }}{{ []|sum }}|{{ ['a']|sum }}|{{ ['a']|sum(start='') }}
        {{ "hello wORLD it's a-b (c) [d {e <f 1x"|title }}|{{ 'ßx'|title }}|{{ '  x  '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 'xxaxx'|trim(chars='x') }}|{{ '\\x1fa\\u2003'|trim }}|{{ 5|trim }}
        {{ 'foo bar baz qux'|truncate(9) }}|{{ 'foo bar baz qux'|truncate(9, true) }}|{{ 'foo bar baz qux'|truncate(11) }}|{{ 'foo bar baz qux'|truncate(11, false, '...', 0) }}|{{ 'foo bar baz qux'|truncate(length=5, end='', leeway=0) }}|{{ 'foobarbazqux'|truncate(6, leeway=0) }}|{{ 'foo bar baz qux'|truncate(2) }}|{{ [1, 2]|truncate }}
        {{ words|unique|list }}{{ words|unique(true)|list }}{{ [1, 1.0, true, '1']|unique|list }}{{ users|unique(attribute='name')|list|length }}|{{ [[1]]|unique|list }}|{{ 'a b/c?&é~'|urlencode }}{{ {'a b': 'c/d', 'e': 1}|urlencode }}{{ [('a', 1), ('b', 'x y')]|urlencode }}{{ 5|urlencode }}{{ none|urlencode }}
        {{ "a b-c d_e 'f' é"|wordcount }}{{ ''|wordcount }}|{{ 'the quick brown-fox jumped over--the lazy dog and a verylongwordindeed'|wordwrap(12) }}|{{ 'the quick-brown fox verylongwordindeed'|wordwrap(8, false) }}|{{ 'aaa bbb\\nccc ddd'|wordwrap(3, wrapstring='|') }}|{{ 'well-known-thing a-b'|wordwrap(6, break_on_hyphens=false) }}|{{ 'a  b   c'|wordwrap(4) }}|{{ 'abc'|wordwrap(0) }}|{{ '   lead'|wordwrap(3) }}
        {{ {'class': 'a', 'id': none, 'x': missing, 'n': 1, 'q': '<\\"'}|xmlattr }}|{{ {'a': 1}|xmlattr(false) }}|{{ {}|xmlattr }}|{{ {'a b': 1}|xmlattr }}|{{ {'a': '<'|e}|xmlattr(autospace=true) }}
        {{ nested|tojson }}{{ nested|tojson(indent=2) }}|{{ uni|tojson }}|{{ uni|tojson(ensure_ascii=true) }}|{{ d|tojson(sort_keys=true) }}|{{ d|tojson(separators=(',', ':')) }}|{{ d|tojson(true, 1, (',', ':'), true) }}|{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}|{{ (1, 2)|tojson }}|{{ [1e16, 1e-7, 1.0, -0.0]|tojson }}|{{ '\\x7f\\x00\\u2028</script>'|tojson }}|{{ []|tojson(indent=2) }}|{{ {}|tojson(indent=2) }}|{{ [1, [2]]|tojson(indent='--') }}|{{ [1]|tojson(indent=0) }}|{{ [1]|tojson(indent=-1) }}|{{ [1]|tojson(indent=true) }}|{{ missing|tojson }}|{{ range(2)|tojson }}|{{ {(1, 2): 3}|tojson }}|{{ d.keys()|tojson }}|{{ [1e308 * 10]|tojson }}|{{ l|select|tojson }}|{{ namespace(a=1)|tojson }}|{{ '<'|e|tojson }}|{{ d|tojson(nosuch=1) }}
        {{ s|upper|lower|title }}|{{ s|nosuch }}|{{ s|nosuch if false }}|{% if false %}{{ s|nosuch }}{% endif %}ok|{% for i in [] %}{{ s|nosuch }}{% endfor %}|{{ s|upper(1) }}|{{ s|e(x=1) }}|{{ l|items }}|{{ d|items|list }}|{{ missing|items|list }}|{{ s|list }}{{ d|list }}{{ (1, 2)|list }}|{{ 5|list }}|{{ s|count }}""".split("\n")


def formats():
    values = ["5", "-5", "3.14159", "-0.0", "1234567.891", "'abc'", "true", "none", "[1]", "1e100", "0", "255"]
    for spec in ["%d", "%5d|", "%-5d|", "%05d", "%+d", "% d", "%x", "%#X", "%o", "%s", "%r", "%a", "%.2s", "%5s|", "%-5s|", "%f", "%.1f", "%.0f", "%#.0f", "%e", "%.2E", "%g",
                 "%.3g", "%#g", "%08.2f", "%+.1e", "%c", "%i", "%u", "%%", "%", "%q", "%5%", "%.3d", "%ld", "%(a)s"]:
        for value in values:
            yield f"{{{{ '{spec}' % {value} }}}}"
    for spec in ["", "5", "<6", ">6", "^6", "*^7", "=6", "06", "+", " ", "d", "x", "#x", "b", "o", "c", ",", "_", "010,", "e", ".2f", ".3", ".1", "g", ".3g", "%", ".1%", "s", ".2", "n", "_x", ",.2f", "z.1f", "5.1f", "#b", "^+9.2e", "q", "<<5", "é>6", "G", ".0f", "#.0f"]:
        for value in values:
            yield f"{{{{ '{{:{spec}}}|'.format({value}) }}}}"
    yield from """{{ '%s %s' % ('a', 1) }}|{{ '%s' % ('a', 1) }}|{{ '%s %s' % ('a',) }}|{{ '%(a)s %(b)d' % {'a': 1, 'b': 2} }}|{{ '%s' % {'a': 1} }}|{{ '%s' % [1, 2] }}|{{ '%*d|' % (5, 3) }}|{{ '%-*d|' % (5, 3) }}|{{ '%.*f' % (2, 3.14159) }}|{{ 'abc' % () }}|{{ 'abc' % 1 }}|{{ 'abc' % [] }}|{{ '%%' % () }}|{{ '%s%%' % 5 }}|{{ '%d' % 2.9 }}|{{ '%d' % '5' }}|{{ '%x' % 2.5 }}|{{ '%c%c' % (65, 'b') }}|{{ '%s' % missing }}|{{ '%d' % missing }}|{{ '%(a)s' % {'b': 1} }}|{{ '%s' % '%s' % 1 }}
        {{ '{} {}'.format(1, 2) }}|{{ '{1} {0}'.format(1, 2) }}|{{ '{a}'.format(a=1) }}|{{ '{0.b} {0[b]}'.format(d) }}|{{ '{0[0]}{0[2]}'.format(l) }}|{{ '{!r}{!s}{!a}'.format('é', 'é', 'é') }}|{{ '{{}}'.format() }}|{{ '{'.format() }}|{{ '}'.format() }}|{{ '{} {0}'.format(1) }}|{{ '{}'.format() }}|{{ '{x}'.format() }}|{{ '{:{}}|'.format(1, 5) }}|{{ '{:{w}.{p}f}|'.format(1.23456, w=8, p=2) }}|{{ '{:>{w}}'.format('a', w=4) }}|{{ '{0.__class__}'.format(1) }}|{{ '{a.b.x}'.format(a={'b': {'x': 1}}) }}|{{ '{a}'.format_map({'a': 5}) }}|{{ '{!x}'.format(1) }}|{{ '{:5}|'.format([1]) }}|{{ '{}'.format(none) }}|{{ '{:5}'.format(none) }}|{{ '{:d}'.format('5') }}|{{ '{:,}'.format(1234567) }}{{ '{:,}'.format(-1234.5) }}{{ '{:_b}'.format(255) }}{{ '{:09,}'.format(1234) }}|{{ '{}'.format(missing) }}|{{ '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') }}|{{ '{0}{0}'.format('x') }}|{{ '{:}'.format(3) }}|{{ '<{}>'.format('<'|e) }}{{ ('<{}>'|safe).format('<') }}""".split("\n")


def tests():
    values = ["1", "2", "2.0", "-1", "true", "false", "none", "missing", "''", "'ab'", "'AB'", "'aB'", "[1]", "(1,)", "{}", "range(2)", "l|select", "d.items()", "namespace()", "cycler(1)", "joiner()",
              "range", "dict", "namespace", "s.upper", "'<'|e"]
    for name in ("boolean callable defined escaped even false float integer iterable lower mapping none number odd sequence string true undefined upper filter test "
                 "divisibleby(2) sameas(1) eq(1) ne(1) in([1,'ab']) gt(1) lt('b') ge(2.0) le(1) equalto(true)").split():
        for value in values:
            yield f"{{{{ {value} is {name} }}}}"
    yield from """{{ 1 is divisibleby 2 }}{{ 4 is divisibleby(num=2) }}|{{ 1 is eq 1 }}|{{ 1 is == 1 }}|{{ 1 is in [1] }}{{ 1 is not in [1] }}|{{ 'upper' is filter }}{{ 'nosuch' is filter }}{{ 'odd' is test }}{{ 'in' is test }}{{ '==' is test }}|{{ [1] is filter }}|{{ 1 is odd is even }}|{{ 1 is nosuch }}|{{ 1 is defined and 2 is even }}|{{ not 1 is odd }}{{ 1 is not odd }}|{{ x is sameas x }}{{ l is sameas l }}{{ [] is sameas [] }}{{ none is sameas none }}{{ true is sameas true }}{{ 1 is sameas true }}|{{ 5 is divisibleby 0 }}|{{ 'a' is divisibleby 2 }}|{{ 1 is defined(1) }}|{{ s is string and s is not mapping }}|{{ 3 is greaterthan 2 }}{{ 3 is lessthan 2 }}|{{ 1 is number }}{{ 1 is integer }}{{ true is integer }}{{ true is number }}|{{ 'a' is lower is true }}|{{ 1 is eq 1 if true else 2 }}|{{ 1 is in (1, 2) }}|{{ missing is none }}{{ missing is undefined }}""".split("\n")


def statements():
    yield from r"""{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{{ loop.previtem is defined }}{% endfor %}
{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for i in l %}{{ loop.cycle() }}{% endfor %}
{% for i in l %}{{ loop.nosuch }}{{ loop }}{% endfor %}
{% for i in l if i > 1 %}{{ loop.index }}{{ i }}{% else %}none{% endfor %}
{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}
{% for i in l if loop.first %}{{ i }}{% endfor %}
{% for i in l %}{% for j in 'ab' %}{{ loop.index }}{{ loop.depth }}{{ i }}{{ j }}{% endfor %}{{ loop.index }}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }}{% endfor %}
{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for i in [1, [2, [3]]] recursive %}{% if i is iterable %}<{{ loop(i) }}>{% else %}{{ i }}@{{ loop.depth }}{% endif %}{% endfor %}
{% for i in l %}{{ loop([1]) }}{% endfor %}
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}
{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [1] %}{% continue %}{% else %}else{% endfor %}
{% for i in [1] %}{% break %}{% else %}else{% endfor %}
{% break %}
{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for i in missing %}x{% else %}y{% endfor %}
{% for i in 5 %}x{% endfor %}
{% for i in none %}x{% endfor %}
{% for loop in l %}{{ loop }}{% endfor %}
{% for i in l %}{% set z = i %}{% endfor %}{{ z is defined }}
{% set z = 0 %}{% for i in l %}{% set z = z + i %}{{ z }}{% endfor %}{{ z }}
{% set z = 0 %}{% if true %}{% set z = 1 %}{% endif %}{{ z }}
{% for i in l %}{{ i }}{% endfor %}{{ i }}
{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ ns.q }}{{ ns['n'] }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns }}
{% set ns = namespace([('a', 1)]) %}{{ ns.a }}{{ ns }}
{% set ns = namespace(_a=1) %}{{ ns }}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}
{% set d.q = 1 %}
{% set q.a = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set a, b = 1 %}
{% set (a, b) = [1, 2] %}{{ a }}{{ b }}
{% set a = 1, 2 %}{{ a }}
{% set a %}x{{ n }}y{% endset %}[{{ a }}]
{% set a | upper | replace('X', 'z') %}x{{ n }}y{% endset %}[{{ a }}]
{% set a %}{% set b = 1 %}{% endset %}{{ b is defined }}
{% set none = 1 %}
{% set a = b = 1 %}
{% filter upper %}a{{ s }}{% endfilter %}
{% filter length %}a{% endfilter %}
{% call dict() %}a{% endcall %}
{% call range(1) %}a{% endcall %}
{{ n[1:] }}
{{ none_value[1:] }}
{{ yes[::2] }}
{% filter replace('a', 'b')|upper %}aXa{% endfilter %}
{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q is defined }}
{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% with a=1 %}{% with b=a %}{{ b }}{% endwith %}{% endwith %}
{% set a = 5 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% macro m(a, b='c') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m('x', b='y') }}{{ m() }}{{ m(b=1) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, z=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}{{ m() }}
{% macro m() %}{{ varargs|length }}{% endmacro %}{{ m(1, 2) }}{{ m(*[1, 2, 3]) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(**{'a': 1, 'b': 2}) }}{{ m(*[1], **{'b': 3}) }}
{% macro m() %}{{ q }}{% endmacro %}{% set q = 1 %}{{ m() }}
{% macro m() %}{% set q = 1 %}{% endmacro %}{{ m() }}{{ q is defined }}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}
{% macro m(a, b=1) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}{{ m }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{{ s }}{% endcall %}
{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}
{% macro m() %}[{{ caller('x') }}]{% endmacro %}{% call(a, b='d') m() %}{{ a }}{{ b }}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}in{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}
{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}
{% macro m(caller) %}{% endmacro %}
{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% macro m() %} a {% endmacro %}[{{ m() }}][{{ m()|trim }}][{{ m() ~ 'b' }}][{{ m()|length }}]
{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}
{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}
{% block a %}x{{ s }}{% endblock %}{{ self.a() }}
{% block a %}x{% endblock a %}{% block b scoped %}y{% endblock %}
{% for i in l %}{% block a scoped %}{{ i }}{% endblock %}{% endfor %}
{% for i in l %}{% block a %}{{ i }}{% endblock %}{% endfor %}
{% block a %}{% endblock %}{% block a %}{% endblock %}
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% if false %}{% include 'x' %}{% endif %}ok
{% autoescape true %}{{ '<' }}{{ '<'|safe }}{% endautoescape %}{{ '<' }}
{% autoescape true %}{{ '<' ~ '<'|safe }}{% endautoescape %}
{% autoescape true %}{% set q = '<' %}{{ q ~ q|safe }}{{ ['<', '<'|safe]|join('>') }}{{ 1 }}{{ l }}{% endautoescape %}
{% autoescape true %}{% set a %}<{{ '<' }}{% endset %}{{ a }}{% macro m() %}<{{ '<' }}{% endmacro %}{{ m() }}{% endautoescape %}
{% print 1, 'a' %}
{% do l.append(1) %}
{% trans %}x{% endtrans %}
{% debug %}
{% raw %}{{ x }}{% y %}{# z #}{% endraw %}
{% raw -%}  {{ x }}  {%- endraw %}|
a{% raw %} {{ {% endraw %}b
{# comment #}a{#- x -#} b{# {{ x }} {% y %} #}c
{% if a %}1{% elif n == 3 %}2{% else %}3{% endif %}
{% if none %}1{% elif missing %}2{% endif %}
{% if n == 3 and s %}y{% endif %}{% if not n %}n{% endif %}
{% if l if true else d %}x{% endif %}
{% if %}{% endif %}
{% if true %}
{% endif %}
{{ }}
{{ 1
{{ 'a }}
{{ a b }}
{{ (1 }}
{{ [1 }}
{{ 1 + }}
{{ {'a' 1} }}
{{ @ }}
{{ a.b. }}
{{ a! }}
{% nosuch %}
{% for i %}{% endfor %}
{% set %}
{{ "a" if }}
{{ f(a=1, 2) }}
{{ f(a=1, a=2) }}
{{ cycler('a', 'b').next() }}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}{{ c.pos }}
{{ cycler() }}
{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}{% set k = joiner() %}{{ k() }}{{ k() }}
{{ range(3) }}{{ range(1, 4)|list }}{{ range(4, 1, -1)|list }}{{ range(0, 10, 3)|list }}{{ range(0) }}{{ range(0, 9, 2) }}
{{ range(0, 5, 0) }}
{{ range(100001) }}
{{ range('a') }}
{{ range(2.0) }}
{{ range() }}
{{ range(stop=3) }}
{{ dict(a=1, b='x') }}{{ dict([('a', 1)]) }}{{ dict({'a': 1}, b=2) }}{{ dict() }}{{ dict.fromkeys(['a', 'b'], 0) }}{{ dict([['a', 1]], a=3) }}
{{ dict(1) }}
{{ dict([1]) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %j %a %A %b %B %y %I %p %U %W %V %G %u %w %%') }}
{{ strftime_now('%c|%x|%X|%D|%F|%T|%R|%r|%e|%k|%l|%P|%C|%g|%h|%n|%t|%f|%Z%z|%-d|%-m|%_m|%^a|%#p|%05d|%q') }}
{{ strftime_now() }}
{{ strftime_now(1) }}
{{ strftime_now(format='%d') }}
{{ raise_exception('no') }}
{{ raise_exception() }}
{% set namespace = 1 %}{{ namespace }}
{% set range = 5 %}{{ range }}
{{ self }}x
{{ bos_token }}{{ messages[0].role }}{{ messages[0]['content'] }}{{ messages[-1].content }}{{ messages|length }}
{{ messages[1:]|map(attribute='role')|join(',') }}{{ (messages|last).role }}{{ messages|selectattr('role', 'equalto', 'user')|first }}
{% if tools is iterable and tools | length > 0 %}T{% else %}N{% endif %}
{% if tools %}T{% endif %}{% if not tools is defined or tools is none %}N{% endif %}
{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.content is string %}{{ m.content | trim }}{% endif %}{% if loop.last and add_generation_prompt %}!{% endif %}{% endfor %}
{%- for m in messages -%} {{ m.role }} {%- endfor -%}
{% set x = [1] %}{% set x = x + [2] %}{{ x }}
{% set m = messages[0] %}{% set m = dict(m, content='new') %}{{ m }}
{{ {'a': 1}.items()|list }}{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}{{ {'a': [1, {'b': none}]} }}
{{ (lambda x: x) }}
{{ [x for x in l] }}
{{ l is not none and l[0] == 3 }}
{{ 'a' in 'abc' and 'z' not in 'abc' }}
{{ 1if true else 2 }}
{{ not true }}{{ not(true) }}
{{ True }}{{ False }}{{ None }}{{ TRUE is defined }}
{{ none|default('x') }}{{ None is none }}
{% set s = s + '!' %}{{ s }}
{% macro outer() %}{% macro inner() %}{{ s }}{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}
{{ '\n' }}{{ "\\n" }}
{{ 'a' ~ 1 + 2 ~ 'b' }}
{{ [1, 2, 3][1:][0] }}{{ {'a': {'b': [5]}}.a.b[0] }}{{ ('x' ~ 'y').upper() }}{{ 'abc'.upper()[1] }}{{ l|sort|first }}{{ (l|sort)[0] }}{{ (l|select)[0] }}""".split("\n")


def spaces():
    yield from [
        "a\r\nb\rc\n", "a\n", "a\n\n", "\n", "", "\r\n", "x\r\n{% if true %}\r\ny\r\n{% endif %}\r\nz\r\n", "a\rb", "{{ 'a\r\nb' }}", "{{ 'a\rb'|length }}",
        "  {% if true %}\n a\n  {% endif %}\nb\n", "a  {%- if true -%}  b  {%- endif -%}  c", "a\n  {%+ if true %}\nb\n{%+ endif %}", "{% if true +%}\nb{% endif +%}\nc",
        "  {{ 1 }}\n", "a\n\n{{- 1 -}}\n\nb", "a {#- x -#} b", "  {# x #}\n b", "a\n  {# x #}\n  b", "{# x +#}\nb", "x{# y\n z #}\n",
        "{%- set a = 1 -%}\n\n{{ a }}", "\t{% set a = 1 %}\t\n{{ a }}", "a {% set b = 1 %}\n c", "{% set a = 1 %}{% set b = 2 %}\nx", "{% for i in [1, 2] %}\n{{ i }}\n{% endfor %}\n",
        "{% for i in [1, 2] -%}\n  {{ i }}\n{%- endfor %}\nx", "\u00a0{%- if true %}x{% endif %}", "a\u2003{{- 1 }}", "{%if true%}a{%endif%}", "{%-if true-%}a{%-endif-%}",
        "{% raw %}\n a\n{% endraw %}\nb", "  {% raw %}\n a\n  {% endraw %}\nb", "{%- raw -%}\n a\n{%- endraw -%}\nb", "{{\n1\n+\n2\n}}", "{% set a = [\n1,\n2\n] %}{{ a }}", "{{ {'a': {}} }}", "{{ {'a': {'b': 1}}['a'] }}",
        "{ {{ 1 }} }", "{% if true %}{{ '%}' }}{% endif %}", "{{ '}}' }}", "{{ '{{' }}", "a{{ 1 }}{{ 2 }}\n\n", "{# a {# b #} c #}", "{# {% raw %} #}x{% raw %}{# y #}{% endraw %}", "{{- -1 }}", "{{ 5 -}} x", "{{ 5 - }} x",
        "{% block a -%} x {%- endblock %}", "a\n{% generation %}\nb\n{% endgeneration %}\nc\n", "  {%- macro m() %}\n x\n  {% endmacro %}\n[{{ m() }}]", "\v{% if true %}\fx{% endif %}", "a\u2028{% if true %}x{% endif %}",
        "{% if true %}\n\n\nx{% endif %}", "{% if true -%}\n\n\nx{% endif %}", "x {%- if true %} y {% endif -%} z", "x\n\t {%- if true %}\n\ty{% endif %}", "{{ 'a' }}\n{% if true %}\nb{% endif %}",
    ]


def split(line: str):
    """Splits a line into constructs, at each `|` between a tag's end and the next one's start."""
    return re.split(r"(?<=[%}]\})\|(?=\{[{%])", line)


def constructs():
    for group in (methods, operators, filters, formats, tests):
        for line in group():
            for piece in split(line.strip()):
                yield piece.strip()
    yield from statements()
    yield from spaces()


def render(source: str):
    try:
        return chat._compile_jinja_template(source).render(**copy.deepcopy(VARIABLES))  # `indent` appends to a list
    except Exception:  # A template may raise any exception.
        return None


def main() -> None:
    warnings.simplefilter("ignore")
    chat.datetime = Clock
    rows = {source: render(source) for source in constructs()}
    rows = {source: text for source, text in rows.items() if text is None or " at 0x" not in text}
    lines = ",\n".join(json.dumps([source, text], ensure_ascii=False) for source, text in rows.items())
    head = json.dumps(VARIABLES, ensure_ascii=False)
    OUT.write_text(f'{{"variables": {head},\n"rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{len(rows)} constructs, {sum(text is None for text in rows.values())} of them errors, {OUT.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
