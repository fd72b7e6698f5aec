#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Plain technical English: forms of speech that must not come back, sentences above 40 words, lines above 120 columns.
# Called by: make check. Reads man/, docs/, README.md and NEWS, and the comments and texts of sources.
# TOFU_PROSE_COUNTS=1 prints how often each page has each form.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
cd "$TOFU_TOP_SRCDIR" || exit 99

most_words=40
most_columns=120
# Forms, as extended regular expressions in lower case; \< and \> are the bounds of a word.
forms=("\<who(ever|m|mever)?\>" "\<(his|him|himself)\>" "\<told\>" "\<in vain\>" "\<of the dead\>" "\<can('|no)t be had\>"
    "\<in silence\>" "\<without a word\>" "\<as ever\>" "\<not offered\>" "\<(any|every|no|some)body\>" "\<can't\>"
    "\<unless told\>" "\<whose turn\>" "\<it is over with\>" "\<goes home\>" "\<leave it away\>" "\<left away\>"
    "\<nothing is to be told\>" "\<all told\>" "\<makes? no sense\>" "\<says? nonsense\>")
# In comments and texts of sources, where a sentence may quote.
code_forms=("\<who(ever|m|mever)?\>" "\<(his|him|himself)\>" "\<told\>" "\<in vain\>" "\<of the dead\>"
    "\<can('|no)t be had\>" "\<as ever\>" "\<(any|every|no|some)body('s)?\>" "\<can't\>" "\<unless told\>"
    "\<leave it away\>" "\<says? nonsense\>")

# Prints "FILE:LINE<tab>TEXT" for each paragraph of a manual page: one line of text without macros. Headings, synopsis,
# and examples are none; a tag of a list and a cell of a table are one each.
paragraphs_of_page() # FILE
{
    awk -v file="$1" '
        function flush() {
            gsub(/\\f[A-Z]|\\&/, "", text); gsub(/\\-/, "-", text); gsub(/\\e/, "\\", text); gsub(/  +/, " ", text)
            if (text ~ /[A-Za-z]/) print file ":" first "\t" text
            text = ""
        }
        function add(words) { if (text == "") first = FNR; text = text (text == "" || glued ? "" : " ") words; glued = 0 }
        # The arguments of a macro: fonts in turn are set without spaces, else with one.
        function arguments(joint,   rest, all, one, count) {
            rest = substr($0, length($1) + 1); all = ""; count = 0
            while (match(rest, /^ *("[^"]*"|[^ ]+)/)) {
                one = substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH)
                sub(/^ */, "", one); gsub(/^"|"$/, "", one)
                all = all (count++ ? joint : "") one
            }
            return all
        }
        function text_line(words) { add(words); if (tag) { flush(); tag = 0 } }
        /^\.\\"/ || /^.\\" t$/ { next }
        /^\.(SH|SS|TH)/ { flush(); synopsis = /^\.SH "?SYNOPSIS/; next }
        /^\.(nf|EX)/ { flush(); verbatim = 1; next }
        /^\.(fi|EE)/ { verbatim = 0; next }
        verbatim || synopsis { next }
        /^\.TS/ { flush(); layout = 1; next }
        /^\.TE/ { flush(); table = 0; next }
        layout { if (/\.$/) { layout = 0; table = 1 }; next }
        /^\.TP/ { flush(); tag = 1; next }
        /^\.(IP|PP|P|LP|br|sp|RS|RE|TQ)/ { flush(); tag = /^\.TQ/; next }
        table && /^(T[{]|T[}].*|[-_=])$/ { flush(); next }
        table && /[|]/ && !/^\./ {
            count = split($0, cells, "|")
            for (i = 1; i <= count; i++) { if (cells[i] !~ /^T[{}]$/) add(cells[i]); flush() }
            next
        }
        /^\.[BI] / { text_line(arguments(" ")); next }
        /^\.(BR|RB|BI|IB|IR|RI) / { text_line(arguments("")); next }
        /^\./ { next }
        { text_line($0) }
        END { flush() }' "$1"
}

# The same of a document: paragraphs, items and headings, without code, also within a line; a row of a table is one.
paragraphs_of_document() # FILE
{
    awk -v file="$1" '
        function flush() { gsub(/`[^`]*`/, "code", text); if (text ~ /[A-Za-z]/) print file ":" first "\t" text; text = "" }
        /^ *```/ { flush(); code = !code; next }
        code { next }
        /^ *$/ { flush(); next }
        /^    / && text == "" { next }
        /^ *([-*+|#]|[0-9]+[.])/ { flush() }
        { if (text == "") first = FNR; sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0 }
        END { flush() }' "$1"
}

# The comments and the texts of three words or more of C and C++ sources, a line each.
texts_of_sources() # FILE...
{
    awk '
        FNR == 1 { block = 0 }
        {
            rest = $0; said = ""
            while (rest != "") {
                if (block) {
                    if ((at = index(rest, "*/")) == 0) { said = said " " rest; break }
                    said = said " " substr(rest, 1, at - 1); rest = substr(rest, at + 2); block = 0
                } else if (match(rest, /"([^"\\]|\\.)*"|\047([^\047\\]|\\.)\047|\/\/|\/\*/)) {
                    token = substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH)
                    if (token == "//") { said = said " " rest; break }
                    if (token == "/*") block = 1
                    else if (token ~ /^"/ && split(token, words, " ") >= 3) said = said " " token
                } else break
            }
            if (said ~ /[a-z]/) print FILENAME ":" FNR "\t" said
        }' "$@"
}

# Sentences of paragraphs that are too long: "FILE:LINE: N words: BEGINNING...".
long_sentences()
{
    awk -F '\t' -v most="$most_words" '{
        text = $2
        gsub(/[.!?][")]*( |$)/, "&\n", text)
        count = split(text, sentences, "\n")
        for (i = 1; i <= count; i++) {
            words = split(sentences[i], word, /[^A-Za-z0-9_.,:\047\/()*-]+/)
            real = 0
            for (j = 1; j <= words; j++) real += word[j] ~ /[A-Za-z0-9]/
            if (real > most) printf "%s: %d words: %.60s...\n", $1, real, sentences[i]
        }
    }'
}

# "FILE:LINE: FORM" for each of the forms that a paragraph has.
forms_in() # FORM...
{
    local form text place
    text=$(cat)
    for form in "$@"; do
        grep -iE "$form" <<<"$text" | cut -f 1 | while read -r place; do printf '%s: %s\n' "$place" "$form"; done
    done
}

long_lines() # FILE...
{
    LC_ALL=C.UTF-8 grep -HnE ".{$((most_columns + 1))}" "$@" | cut -d : -f 1,2
}

all_pages() { for page in man/*.[1-8]; do paragraphs_of_page "$page"; done; }
all_documents() { for document in README.md NEWS CONTRIBUTING.md docs/*.md; do paragraphs_of_document "$document"; done; }
mapfile -t sources < <(find prov tofu_sim analysis check bench fabtests include schedule mpi tests -name '*.h' -o -name '*.cc' -o -name '*.c' | sort)

if [ -n "${TOFU_PROSE_COUNTS:-}" ]; then
    for form in "${forms[@]}"; do
        printf '%-28s man %4d  docs %4d\n' "$form" "$(all_pages | cut -f 2 | grep -oiE "$form" | wc -l)" \
            "$(all_documents | cut -f 2 | grep -oiE "$form" | wc -l)"
    done
    printf '%-28s man %4d  docs %4d\n' "sentences > $most_words words" "$(all_pages | long_sentences | wc -l)" \
        "$(all_documents | long_sentences | wc -l)"
    printf '%-28s man %4d  docs %4d\n' "lines > $most_columns columns" "$(long_lines man/*.[1-8] | wc -l)" \
        "$(long_lines README.md docs/*.md | wc -l)"
    exit 0
fi

# The test itself: it finds what it is for, also across the end of a line and the change of a font.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{
    printf '.SH NAME\nword\n.SH TEXT\nThe peer\n.B who\nspeaks tries in\nvain. It is\n.BR told .\n.TP\n.B tag\n'
    printf 'one %.0s' {1..41}
    printf '\n.PP\n'
    printf 'one %.0s' {1..40}
    printf 'end. Another.\n.EX\nwhoever\n.EE\n.TS\ntab(|);\nl l.\nhis|T{\nno more\nT}\n.TE\n'
} >"$scratch/page.7"
found=$(paragraphs_of_page "$scratch/page.7" | forms_in "${forms[@]}" | sed 's|.*page.7:||')
expect "forms of a page are found" $'4: \\<who(ever|m|mever)?\\>\n20: \\<(his|him|himself)\\>\n4: \\<told\\>\n4: \\<in vain\\>' "$found"
found=$(paragraphs_of_page "$scratch/page.7" | long_sentences | sed 's|.*page.7:||; s| one.*||')
expect "long sentences are found" $'11: 41 words:\n13: 41 words:' "$found"
printf '# Who\n\n`told` In silence it\nfails.\n```\nwho\n```\n- as\n  ever\n' >"$scratch/document.md"
found=$(paragraphs_of_document "$scratch/document.md" | forms_in "${forms[@]}" | sed 's|.*document.md:||')
expect "forms of a document are found" $'1: \\<who(ever|m|mever)?\\>\n3: \\<in silence\\>\n8: \\<as ever\\>' "$found"

printf '%0120d\n%0121d\n| %0120d |\n' 0 0 0 >"$scratch/wide.md"
found=$(long_lines "$scratch/wide.md" "$scratch/document.md" | sed 's|.*wide.md:||')
expect "long lines are found, also of tables" $'2\n3' "$found"

printf 'int who; // nobody\nf("told"); /* his\nwho */ g("it is told again", \047"\047); // can\047t\n' >"$scratch/source.cc"
found=$(texts_of_sources "$scratch/source.cc" | forms_in "${code_forms[@]}" | sed 's|.*source.cc:||')
expect "forms of a source are found" $'3: \\<who(ever|m|mever)?\\>\n2: \\<(his|him|himself)\\>\n3: \\<told\\>\n1: \\<(any|every|no|some)body(\047s)?\\>\n3: \\<can\047t\\>' "$found"

expect "forms in man/" "" "$(all_pages | forms_in "${forms[@]}")"
expect "forms in docs/ and README.md" "" "$(all_documents | forms_in "${forms[@]}")"
expect "forms in comments and texts of sources" "" "$(texts_of_sources "${sources[@]}" | forms_in "${code_forms[@]}")"
expect "sentences of man/ above $most_words words" "" "$(all_pages | long_sentences)"
expect "lines of man/ above $most_columns columns" "" "$(long_lines man/*.[1-8])"
expect "sentences of docs/ and README.md above $most_words words" "" "$(all_documents | grep -v $'\t|' | long_sentences)"
expect "lines of documents above $most_columns columns" "" "$(long_lines README.md NEWS CONTRIBUTING.md docs/*.md)"
mapfile -t makefiles < <(find . -name build -prune -o \( -name Makefile.include -o -name Makefile.am -o -name units.am \) -print)
expect "lines of Makefiles above $most_columns columns" "" "$(long_lines "${makefiles[@]}")"
exit $((failures != 0))
