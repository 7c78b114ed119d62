# Run it as root, after reading it; running it again does no harm. It
#   1. installs Python, the SSH server and the container runtime from this machine's own sources,
#   2. makes an account with a plain shell, under which the helper and its containers run,
#   3. lets one key log in as that account, run two commands and nothing else, and its helper give
#      tasks no more than a list allows,
#   4. sets limits of the SSH server for that account,
#   5. where there is an NVIDIA driver: installs the container toolkit and describes the GPUs (CDI).
# It fetches nothing by itself: what apt does not know is named at the end.
set -eu
umask 022

GATE=/usr/local/lib/rpm-node/gate
CLOSED=/etc/rpm-node/closed
ALLOWLIST=/etc/rpm-node/allowlist.json
KEYS=/etc/ssh/rpm_node_keys
LIMITS=/etc/ssh/sshd_config.d/60-rpm-node.conf
CDI=/etc/cdi/nvidia.yaml
UNITS=/etc/systemd/system
todo=""

say() { printf '%s\n' "rpm-node: $*"; }
fail() { say "$*" >&2; exit 1; }
later() { todo="$todo
  - $*"; }

has_systemd() { [ -d /run/systemd/system ]; }
is_installed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p' | grep -v '^(none)$' || true; }

# Write standard input to a file of root's, only if it is not like that already.
put() {
	mkdir -p "$(dirname "$1")"
	cat >"$1.rpm-new"
	chmod "$2" "$1.rpm-new"
	if [ -f "$1" ] && cmp -s "$1" "$1.rpm-new"; then
		rm -f "$1.rpm-new"
	else
		mv -f "$1.rpm-new" "$1"
		say "wrote $1"
	fi
}

install_packages() {
	missing=""
	for package in "$@"; do
		is_installed "$package" || missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	say "installing$missing"
	# shellcheck disable=SC2086  # names of packages, from this file
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}

check_machine() {
	[ "$(id -u)" = 0 ] || fail "run this as root"
	command -v apt-get >/dev/null || fail "this is for Debian and Ubuntu: there is no apt-get here"
	# shellcheck disable=SC1091  # of this machine
	. /etc/os-release
	case "$ID ${VERSION_ID:-}" in
	"debian 12" | "debian 13" | "ubuntu 22.04" | "ubuntu 24.04") ;;
	*) say "written for Debian 12 and Ubuntu 22.04 and 24.04; this is $ID ${VERSION_ID:-}" ;;
	esac
}

install_runtime() {
	apt-get update -q
	install_packages python3 openssh-server ca-certificates
	if [ "$RUNTIME" = docker ]; then
		# Docker's own package is as good as the distribution's.
		is_installed docker-ce || install_packages docker.io
		return
	fi
	version=$(candidate podman)
	if [ -n "$version" ] && dpkg --compare-versions "$version" lt 4.1 && ! is_installed podman; then
		fail "this release has podman $version, RPM needs 4.1: make this script with --runtime docker"
	fi
	install_packages podman uidmap slirp4netns fuse-overlayfs dbus-user-session
}

# The first number above every range of the file, for a range of our own.
next_range() {
	awk -F: 'BEGIN { next_one = 100000 } $2 + $3 > next_one { next_one = $2 + $3 } END { print next_one }' "$1" 2>/dev/null ||
		echo 100000
}

# Another program's account is not ours to change, nor another account's folder.
check_account() {
	home=$(getent passwd "$ACCOUNT" | cut -d: -f6)
	[ "${home:-$FOLDER}" = "$FOLDER" ] ||
		fail "there is an account $ACCOUNT already, with the home $home: make this script with another --account, or with --folder $home if it is for RPM alone"
	owner=$(stat -c %U "$FOLDER" 2>/dev/null || echo "$ACCOUNT")
	[ "$owner" = "$ACCOUNT" ] ||
		fail "$FOLDER belongs to $owner: make this script with --account $owner or another --folder"
}

make_account() {
	if ! getent passwd "$ACCOUNT" >/dev/null; then
		useradd --create-home --home-dir "$FOLDER" --shell /bin/sh --user-group "$ACCOUNT"
		say "made the account $ACCOUNT"
	fi
	[ "$(id -u "$ACCOUNT")" != 0 ] || fail "$ACCOUNT is root: choose another account"
	# No start-up files of other shells.
	case "$(getent passwd "$ACCOUNT")" in
	*:/bin/sh) ;;
	*) usermod --shell /bin/sh "$ACCOUNT" ;;
	esac
	# No password fits "*", and it is not "locked", which keeps keys out too on some machines.
	case "$(getent shadow "$ACCOUNT")" in
	"$ACCOUNT:!"*) usermod --password '*' "$ACCOUNT" ;;
	esac
	if [ "$RUNTIME" = docker ]; then
		# Access to docker makes an account root on this machine: this account is for RPM alone.
		usermod --append --groups docker "$ACCOUNT"
	else
		for kind in uid gid; do
			grep -q "^$ACCOUNT:" "/etc/sub$kind" 2>/dev/null && continue
			first=$(next_range "/etc/sub$kind")
			usermod "--add-sub${kind}s" "$first-$((first + 65535))" "$ACCOUNT"
		done
	fi
	install -d -m 0700 -o "$ACCOUNT" -g "$(id -gn "$ACCOUNT")" "$FOLDER" "$STATE"
}

# Containers outlive the session that started them, and get the limits they are given.
let_containers_stay() {
	[ "$RUNTIME" = podman ] || return 0
	put "$UNITS/user@$(id -u "$ACCOUNT").service.d/rpm-node.conf" 0644 <<-END
		[Service]
		Delegate=cpu cpuset io memory pids
	END
	if has_systemd; then
		systemctl daemon-reload
		loginctl enable-linger "$ACCOUNT"
	else
		later "systemd does not run here: containers may end with the session that starts them"
	fi
}

write_gate() {
	put "$GATE" 0755 <<-END
		#!/bin/sh
		# What RPM's key may do here: run the helper, and install it. Nothing of a request is part of
		# these commands. Installing is needed once and with every new version of RPM; it can be
		# forbidden with: touch $CLOSED
		case "\${SSH_ORIGINAL_COMMAND-}" in
		"$COMMAND")
		    exec $COMMAND ;;
		"python3 -")
		    if [ ! -e "$CLOSED" ]; then RPM_NODE_HOME="$STATE" exec python3 -; fi
		    echo "this node is closed to new helpers: rm $CLOSED" >&2
		    exit 1 ;;
		esac
		echo "this key runs the helper of RPM and nothing else" >&2
		exit 1
	END
	mkdir -p "$(dirname "$CLOSED")"
}

# What the helper lets tasks have at most, whatever the control plane asks. Manual changes stay.
write_allowlist() {
	if [ -f "$ALLOWLIST" ] && [ "$(cat "$ALLOWLIST")" != "$ALLOWED" ]; then
		printf '%s\n' "$ALLOWED" >"$ALLOWLIST.new"
		later "compare $ALLOWLIST, which stays as it is, with $ALLOWLIST.new"
		return 0
	fi
	printf '%s\n' "$ALLOWED" | put "$ALLOWLIST" 0644
}

let_key_in() {
	put "$KEYS" 0644 <<-END
		restrict,command="$GATE" $PUBLIC_KEY
	END
	put "$LIMITS" 0644 <<-END
		# RPM holds one connection, and runs at most $SESSIONS commands at a time in it.
		Match User $ACCOUNT
		    AuthorizedKeysFile $KEYS
		    PubkeyAuthentication yes
		    PasswordAuthentication no
		    KbdInteractiveAuthentication no
		    MaxSessions $((SESSIONS * 2))
		    ClientAliveInterval 15
		    ClientAliveCountMax 4
		    AllowTcpForwarding no
		    AllowAgentForwarding no
		    X11Forwarding no
		    PermitTTY no
		    PermitUserRC no
		Match all
	END
	grep -qiE '^[[:space:]]*Include[[:space:]]+"?/etc/ssh/sshd_config\.d/\*\.conf' /etc/ssh/sshd_config ||
		fail "/etc/ssh/sshd_config does not include sshd_config.d: add Include /etc/ssh/sshd_config.d/*.conf as its first line"
	mkdir -p /run/sshd
	sshd=$(command -v sshd || echo /usr/sbin/sshd)
	if ! "$sshd" -t; then
		mv "$LIMITS" "$LIMITS.refused"
		fail "the SSH server refuses its settings; they are in $LIMITS.refused"
	fi
	if has_systemd; then
		systemctl reload-or-restart ssh
	fi
}

prepare_gpus() {
	if [ ! -e /proc/driver/nvidia/version ]; then
		say "no NVIDIA driver is loaded: no GPUs are prepared"
		later "for GPUs: install the NVIDIA driver (Ubuntu: ubuntu-drivers install; Debian: nvidia-driver), restart, run this again"
		return 0
	fi
	if [ -n "$NVIDIA_SOURCE" ]; then
		printf '%s\n' "$NVIDIA_SOURCE" | put /etc/apt/sources.list.d/rpm-nvidia.list 0644
		apt-get update -q
	fi
	if [ -n "$(candidate python3-pynvml)" ]; then
		install_packages python3-pynvml
	else
		later "for use and memory of GPUs: put the Python package nvidia-ml-py where python3 finds it"
	fi
	if ! command -v nvidia-ctk >/dev/null; then
		if [ -z "$(candidate nvidia-container-toolkit)" ]; then
			later "add NVIDIA's package source for nvidia-container-toolkit with its key, as NVIDIA's installation guide says, run this again"
			return 0
		fi
		install_packages nvidia-container-toolkit
	fi
	# Again at every start: a new driver has other files.
	put "$UNITS/rpm-node-cdi.service" 0644 <<-END
		[Unit]
		Description=Describe the NVIDIA GPUs for container runtimes
		After=systemd-modules-load.service nvidia-persistenced.service

		[Service]
		Type=oneshot
		ExecStart=$(command -v nvidia-ctk) cdi generate --output=$CDI

		[Install]
		WantedBy=multi-user.target
	END
	mkdir -p "$(dirname "$CDI")"
	nvidia-ctk cdi generate --output="$CDI"
	if [ "$RUNTIME" = docker ]; then
		nvidia-ctk runtime configure --runtime=docker --cdi.enabled
	fi
	if has_systemd; then
		systemctl daemon-reload
		systemctl enable rpm-node-cdi.service
		[ "$RUNTIME" != docker ] || systemctl restart docker
	fi
}

# The host key that a connection of RPM is shown: of several, the first of these kinds.
shown_host_key() {
	keys=$("$sshd" -T -C "user=$ACCOUNT,host=localhost,addr=127.0.0.1" | sed -n 's/^hostkey //p')
	for kind in ED25519 ECDSA RSA; do
		for key in $keys; do
			line=$(ssh-keygen -l -f "$key.pub" 2>/dev/null || true)
			case "$line" in
			*"($kind)")
				say "  $line"
				return 0
				;;
			esac
		done
	done
	say "  that of the host key of this machine's SSH server"
}

tell() {
	say "done. On the control plane:"
	say "  manage.py node add NAME --pool POOL --address THIS --user $ACCOUNT --key PRIVATE_KEY \\"
	say "    --runtime $RUNTIME --fingerprint FINGERPRINT"
	say "where FINGERPRINT, SHA256:..., is"
	shown_host_key
	[ -z "$todo" ] || say "left to do:$todo"
}

check_machine
check_account
install_runtime
make_account
let_containers_stay
write_gate
write_allowlist
let_key_in
prepare_gpus
tell
