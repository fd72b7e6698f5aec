#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tools/packages over a package manager of our own: what it installs, and that no optional package makes it fail.
# Called by: make check. Calls: tools/packages.
set -u
cd "${TOFU_TOP_SRCDIR:?set by make check}" || exit 99
. tests/lib/expect
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/dpkg-query" <<'END'
#!/bin/bash
[[ " $MISSING " != *" ${*: -1} "* ]] && echo -n installed
END
cat >"$scratch/apt-cache" <<'END'
#!/bin/bash
[[ " $UNKNOWN " != *" $2 "* ]]
END
cat >"$scratch/apt-get" <<'END'
#!/bin/bash
said=$*
case " $said " in *" install "*) echo "${said#*--no-install-recommends }" >>"$CALLS" ;; esac
[[ -z $REFUSED || " $* " != *" $REFUSED "* ]]
END
printf '#!/bin/bash\necho "${USER_ID:-0}"\n' >"$scratch/id"
chmod +x "$scratch"/*

# packages WHAT MISSING STATUS INSTALLED
packages()
{
    local got
    : >"$scratch/calls"
    got=$(PATH=$scratch:$PATH MISSING=$2 UNKNOWN=${UNKNOWN:-} REFUSED=${REFUSED:-} CALLS=$scratch/calls \
        tools/packages >/dev/null 2>&1 </dev/null; echo $?)
    expect "$1" "$3 $4" "$got $(cat "$scratch/calls")"
}

packages "nothing is missing" "" 0 ""
packages "a required package" gcc 0 gcc
packages "an optional package alone" otf2-tools 0 otf2-tools
packages "both" "gcc otf2-tools" 0 "gcc otf2-tools"
UNKNOWN=otf2-tools packages "an optional package that this Debian does not have" otf2-tools 0 ""
UNKNOWN=otf2-tools packages "beside another" "otf2-tools libsimgrid-dev" 0 libsimgrid-dev
REFUSED=update packages "no network, and an optional package is missing" otf2-tools 0 ""
REFUSED=install packages "an optional package that cannot be installed" otf2-tools 0 otf2-tools
REFUSED=update packages "no network, and a required package is missing" gcc 1 ""
REFUSED=install packages "a required package that cannot be installed" gcc 1 gcc
export USER_ID=1000
packages "a user, and an optional package is missing" otf2-tools 0 ""
packages "a user, and a required package is missing" gcc 1 ""
exit $((failures != 0))
