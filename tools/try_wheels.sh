#!/bin/sh
# Install the wheels in FOLDER into an empty environment, as a user without rights, and get a first exact result.
#
#	tools/try_wheels.sh FOLDER
set -eu
folder=${1:?"try_wheels: name the folder of the wheels, such as: tools/try_wheels.sh dist"}
work=$(mktemp --directory)
trap 'rm --recursive --force "$work"' EXIT
cp "$folder"/*.whl "$work"
cd "$work"
python3 -m venv environment
environment/bin/pip install --quiet ./*.whl
if [ "$(id -u)" = 0 ]; then
	chown --recursive 65534:65534 .
	set -- setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all
else
	set --
fi
"$@" env HOME="$work" environment/bin/weft run first_light --clock virtual
