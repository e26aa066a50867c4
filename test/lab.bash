#
# test/lab.bash: a scratch place to run things in.  Sourced by test/run and the demo.
#
# A script that calls lab_enter goes on in a copy of the tree, in a scratch
# directory, as an ordinary user (PostgreSQL refuses to run as root).  There it
# builds zklock and starts servers as it likes.  However it ends,
# everything that still runs in the scratch directory is ended and the directory
# is removed.
#
#	$lab		the scratch directory
#	$tree		the copy of the tree in it; also the working directory
#	$lab/out	files put here outlive the lab, as test/out of the tree
#
# KEEP=1 keeps the scratch directory.

lab_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lab_user=postgres				# the user that root becomes

say() { printf '\n== %s\n' "$*"; }
die() { echo "$*" >&2; exit 1; }

# own_directory DIR [MODE]: makes DIR, which outlives the caller, or takes the one that is there.  Programs
# that the caller runs from DIR have the caller's rights, so no other user may have made it or may
# write into it: in a directory such as /var/tmp, another user could have been faster.
own_directory() {
	mkdir -p -- "$(dirname -- "$1")" || return
	mkdir -m "${2:-700}" -- "$1" 2>/dev/null || true
	if [[ -L $1 || ! -d $1 || ! -O $1 || -n $(find "$1" -maxdepth 0 -perm /022) ]]; then
		echo "$1 is no directory that $(id -un) owns and that no other user may write into; remove it" >&2
		return 1
	fi
}

# --- the lab itself -----------------------------------------------------------

# lab_enter "$@": returns only inside of the lab.
lab_enter() {
	if [[ -n ${LAB:-} ]]; then
		lab_settle
		return
	fi

	local script status=0 run_as=()
	script=$(realpath --relative-to="$lab_top/test" "$0")
	lab=$(mktemp -d "${TMPDIR:-/tmp}/zklock.XXXXXX")
	trap lab_leave EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM

	mkdir "$lab/tree" "$lab/out"
	tar -C "$lab_top" --exclude=./.git --exclude=./test/out --exclude='*.o' --exclude='*.so' \
		--exclude='*.bc' --exclude=./zklock-run -cf - . | tar -C "$lab/tree" -xf -
	chmod 755 "$lab"
	if ((EUID == 0)); then
		chown -R "$lab_user:" "$lab"
		run_as=(--reuid="$lab_user" --regid="$lab_user" --init-groups)
	fi

	# In the background, because only so does bash act on a signal at once, and as a
	# job, because otherwise everything in the lab would ignore SIGINT.
	set -m
	LAB=$lab HOME=$lab setpriv "${run_as[@]}" --pdeathsig TERM \
		"$lab/tree/test/$script" "$@" </dev/null &
	lab_inside=$!
	set +m
	wait "$lab_inside" || status=$?
	lab_inside=

	rm -rf "$lab_top/test/out"
	[[ -z $(ls -A "$lab/out") ]] || cp -r --no-preserve=ownership "$lab/out" "$lab_top/test/out"
	exit "$status"
}

lab_settle() {
	local name
	lab=$LAB
	tree=$lab/tree
	cd "$tree" || exit 1
	trap 'lab_leave; exit 143' TERM		# the process that entered was killed with -9

	# The caller's PostgreSQL, locale and make must not reach in here.
	for name in $(compgen -v PG | grep -v '^PG_'); do unset "$name"; done
	unset MAKEFLAGS MFLAGS MAKELEVEL
	[[ -z ${PG_VERSION:-} ]] || export PG_CONFIG="${PG_CONFIG:-/usr/lib/postgresql/$PG_VERSION/bin/pg_config}"
	export LC_ALL=C.UTF-8 LANG=C.UTF-8 TMPDIR=$lab
	PATH=$("${PG_CONFIG:-pg_config}" --bindir):$PATH:/usr/sbin
	[[ -z ${VALGRIND:-} ]] || lab_valgrind
}

# lab_processes [NAME]: the processes that live in the lab, or in $lab/NAME, found by
# their working directory: nothing needs to be recorded, so nothing can be forgotten,
# and no stranger is hit.
lab_processes() {
	local all=(/proc/[0-9]*/cwd)	# listed before there is a "find", which lives here too
	find "${all[@]}" -maxdepth 0 -lname "$lab/${1:-*}" 2>/dev/null | cut -d/ -f3 |
		grep -vxF -e "$$" -e "$BASHPID"
}

lab_postmasters() {
	local p
	for p in $(lab_processes); do
		[[ $(head -n1 "/proc/$p/cwd/postmaster.pid") == "$p" ]] && echo "$p"
	done 2>/dev/null
}

# lab_forget POSTMASTER.PID: removes what a killed postmaster could not remove
lab_forget() {
	ipcrm -m "$(awk 'NR == 7 { print $2 }' "$1")" 2>/dev/null
	rm -f "$1"
}

lab_leave() {
	local pids file round
	trap '' HUP INT TERM

	# First the processes that would comment on the end of the rest.
	if [[ -n ${lab_inside:-} ]]; then
		kill -KILL -- "-$lab_inside"
		wait "$lab_inside"
	fi 2>/dev/null

	# A postmaster removes its shared memory if it is asked to end.
	pids=$(lab_postmasters)
	if [[ -n $pids ]]; then
		kill -QUIT $pids 2>/dev/null
		kill -CONT $pids 2>/dev/null
		for round in {1..60}; do
			[[ -n $(lab_postmasters) ]] || break
			sleep 0.05
		done
	fi
	while pids=$(lab_processes); [[ -n $pids ]]; do
		kill -KILL $pids 2>/dev/null
		sleep 0.05
	done

	find "$lab" -name postmaster.pid 2>/dev/null | while read -r file; do
		lab_forget "$file"
	done

	if [[ -n ${KEEP:-} ]]; then
		echo "kept: $lab"
	else
		rm -rf "$lab"
	fi
}

# --- zklock -------------------------------------------------------------------

# Build, install below $lab/stage, and write to $lab/stage.conf the settings with which a server
# finds it there.  Arguments go to make.  With SANITIZE=1, the library is built with sanitizers.
lab_stage() {
	local stage=$lab/stage pg_config=${PG_CONFIG:-pg_config} path
	[[ -z ${SANITIZE:-} ]] || set -- CC=gcc COPT='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' "$@"
	make -s -j"$(nproc)" "$@" || return
	make -s install DESTDIR="$stage" "$@" || return

	# PostgreSQL 18 has a setting of its own; before, Debian had one.
	if (($("$pg_config" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/') >= 18)); then
		path="extension_control_path = '$stage$("$pg_config" --sharedir):\$system'"

		# LOAD, with which pg_upgrade looks for libraries, takes $libdir at its word.
		sed -i 's|\$libdir/||' "$stage$("$pg_config" --sharedir)/extension/zklock.control"
	else
		path="extension_destdir = '$stage'"
	fi
	cat >"$lab/stage.conf" <<-END
		$path
		dynamic_library_path = '$stage$("$pg_config" --pkglibdir):\$libdir'
	END
}

# The same with fault points, in $lab/faults: from a copy of the sources, because that is
# another build.
lab_stage_faults() (
	mkdir "$lab/faults" && cp -r Makefile META.json zklock.control zklock--*.sql src "$lab/faults" || exit
	cd "$lab/faults" && rm -f src/*.o src/*/*.o src/*/*/*.o && lab=$lab/faults lab_stage FAULTS=1
)

# lab_sanitized COMMAND...: with SANITIZE=1, preload AddressSanitizer, because postgres is
# not linked with it.  A finding ends the process, and is in the server's log.  The sanitizer
# does not look for leaks: PostgreSQL's processes free memory by ending.
lab_sanitized() {
	[[ -n ${SANITIZE:-} ]] || { "$@"; return; }
	LD_PRELOAD=$(gcc -print-file-name=libasan.so) \
		ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=0 "$@"
}

# lab_sanitizers_found DIR: whether a server's log in DIR has a report of a sanitizer or of memcheck,
# which is shown
lab_sanitizers_found() {
	if [[ -n ${VALGRIND:-} ]]; then
		lab_memcheck_found "$1"
	else
		[[ -n ${SANITIZE:-} ]] &&
			grep -rhE -A 15 'ERROR: AddressSanitizer|: runtime error: ' "$1"
	fi
}

# With VALGRIND=1, servers run in valgrind's memcheck, which writes to their logs.  pg_ctl
# starts the "postgres" that is beside it, and pg_regress that of the path.
lab_valgrind() {
	local programs=$lab/valgrind postgres suppressions
	postgres=$(command -v postgres)
	suppressions=$("${PG_CONFIG:-pg_config}" --sharedir)/valgrind.supp
	mkdir -p "$programs"
	cp "$(command -v pg_ctl)" "$programs"
	cat >"$programs/postgres" <<-END
		#!/bin/bash
		[[ \$1 != -V ]] || exec "$postgres" -V
		echo "a server starts in memcheck" >&2
		exec valgrind --quiet --undef-value-errors=yes --leak-check=no --num-callers=40 \\
			--fullpath-after= --error-markers=BEGIN,END \\
			--suppressions="$tree/test/valgrind.supp" \\
			$([[ ! -f $suppressions ]] || echo "--suppressions=$suppressions") "$postgres" "\$@"
	END
	chmod +x "$programs/postgres"
	PATH=$programs:$PATH
	export PGCTLTIMEOUT=300
}

# lab_memcheck_found DIR: whether memcheck reports an error with a function of zklock in its
# stack, or watched no server at all.  The lines of several processes mix; an error that several
# processes have is one.
lab_memcheck_found() {
	find "$1" -name '*.log' -exec awk -v zklock="[(](in )?$lab/" '
		/^a server starts in memcheck$/ { servers++ }
		!/^==[0-9]+==/ { next }
		{ process = $1; sub(/^==[0-9]+== ?/, "") }
		/^BEGIN$/ { report[process] = ""; is_ours[process] = 0; next }
		/^END$/ {
			key = report[process]
			gsub(/0x[0-9A-F]+/, "", key)
			if (seen[key]++)
				next
			errors++
			if (is_ours[process]) {
				ours++
				printf "%s\n", report[process]
			}
			next
		}
		{ report[process] = report[process] $0 "\n" }
		$0 ~ zklock { is_ours[process] = 1 }
		END {
			printf "memcheck: %d starts of servers, %d errors, %d of them in zklock\n", servers, errors, ours
			exit !(servers == 0 || ours > 0)
		}' {} +
}

# lab_perl DIR COMMAND...: run it with the environment that PostgreSQL's and our own modules for
# tests need; they keep their files in DIR (TESTDIR until PostgreSQL 15, the others since).
lab_perl() {
	local pgxs
	pgxs=$(dirname "$("${PG_CONFIG:-pg_config}" --pgxs)")/../..
	TESTDIR=$1 TESTDATADIR=$1/tmp_check TESTLOGDIR=$1/tmp_check/log \
		PG_REGRESS=$pgxs/src/test/regress/pg_regress TEMP_CONFIG=$lab/stage.conf \
		PERL5LIB=$pgxs/src/test/perl:$tree/test/perl lab_sanitized "${@:2}"
}

# --- ZooKeeper ----------------------------------------------------------------

# zk_start [N]: an ensemble of N servers, 1 or 3; its connect string is in $zk_hosts.
zk_start() {
	if [[ ! -d $lab/zookeeper ]]; then
		zk create "${1:-1}" || return
	fi
	zk start || return
	zk_hosts=$(zk hosts)
}

zk_stop() { zk stop; }

# zk COMMAND [ARGUMENT...]: see test/zookeeper
zk() { "$tree/test/zookeeper" "$1" "$lab/zookeeper" "${@:2}"; }

# --- PostgreSQL ---------------------------------------------------------------

# Servers have a name, a data directory $lab/NAME and a Unix socket in $lab, with a
# port number that only serves to name the socket.  They do not listen on TCP.

# pg_start NAME [CONFIGURATION LINE...]: makes the server if it is new.
pg_start() {
	if [[ ! -d $lab/$1 ]]; then
		initdb -D "$lab/$1" -U postgres -A trust -N --no-instructions >"$lab/$1.log" || return
		pg_configure "$@"
	fi
	pg_launch "$1"
}

# pg_standby NAME PRIMARY [CONFIGURATION LINE...]: a hot standby.
pg_standby() {
	pg_basebackup -D "$lab/$1" -h "$lab" -U postgres -p "$(pg_port "$2")" -R -c fast -N || return
	pg_configure "$1" "${@:3}"
	pg_launch "$1"
}

# Later lines win, so a standby overrides the settings that it copied from its primary.
pg_configure() {
	# Several scripts may start servers in one lab.  The port is only the name of a socket.
	local name=$1 port=$((${lab_last_port:=10000 + $$ % 5000 * 10} + 1))
	lab_last_port=$port
	{
		cat <<-END
			listen_addresses = ''
			unix_socket_directories = '$lab'
			port = $port
			cluster_name = '$name'
			fsync = off
			log_line_prefix = '%m [%p] %b '
			dynamic_shared_memory_type = mmap	# leaves nothing behind, even if killed
			shared_preload_libraries = 'zklock'
			zklock.hosts = '${zk_hosts:-}'
			zklock.node_name = '$name'
		END
		[[ ! -f $lab/stage.conf ]] || cat "$lab/stage.conf"
		shift
		printf '%s\n' "$@"
	} >>"$lab/$name/postgresql.conf"
}

pg_launch() {
	pg_ctl -D "$lab/$1" -l "$lab/$1.log" -w -t 60 start >/dev/null ||
		{ tail -n 20 "$lab/$1.log" >&2; return 1; }
}

# pg_stop NAME [fast|immediate|smart]
pg_stop() { pg_ctl -D "$lab/$1" -m "${2:-fast}" -w stop >/dev/null; }

# pg_kill NAME: as if the machine had died, and was up again without PostgreSQL
pg_kill() {
	local pids
	while pids=$(lab_processes "$1"); [[ -n $pids ]]; do
		kill -KILL $pids 2>/dev/null
		sleep 0.01
	done
	# Where no process reaps orphans, they count as processes that own the lock files.
	lab_forget "$lab/$1/postmaster.pid"
	rm -f "$lab/.s.PGSQL.$(pg_port "$1").lock"
}

pg_port() { sed -n 's/^port = //p' "$lab/$1/postgresql.conf" | tail -n1; }

# pg NAME [PSQL ARGUMENT...]: psql on that server, bare output, ends at an error
pg() { psql -h "$lab" -p "$(pg_port "$1")" -U postgres -d postgres -XqAt \
	-v ON_ERROR_STOP=1 "${@:2}"; }
