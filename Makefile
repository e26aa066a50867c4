# zklock: cluster-wide locks for PostgreSQL, through ZooKeeper.
#
# For users, plain PGXS:
#	make && make install		build and install
#	make installcheck			pg_regress and isolation tests, on a running server
#
# For developers:
#	make help					this text
#	make demo					the whole thing at work, on this machine, in two minutes
#	make test					each promise once, in ten minutes: enough before a commit
#	make check-world			all tests, the longest in a short form, in 75 minutes
#	test/run LEVEL NAME			single levels and files of tests
#	test/steady [N]				the tests of "make test" N times each, on a machine that stands still at random
#	make mutants				whether the tests bite: changes the code, and sees a test fail
#	make unit					the unit tests only; they need no server
#	make fuzz [SECONDS=n]		feeds the parsers what they do not expect, with libFuzzer
#	make bench					zklock beside others; options in test/bench/run, in capitals here
#	make bench-doc				puts what it measured into doc/ and README.md
#	make instructions			what a lock costs in a backend, counted by valgrind
#	make bench-compare BASE=commit	instructions and requests, then and now
#	make model					checks a model of the protocol, with spin
#	make faults					random faults on three servers, from a seed: SEED= RUNS= SECONDS=
#	make faults HOURS=n			for as long as you like; shrinks what it finds (test/faults/run)
#	make faults-five			the same with five servers, 50 clients and five ZooKeepers
#	make soak [HOURS=n]			locks for hours, and what that does to memory and ZooKeeper
#	make abuse [SECONDS=n]		a lock beside a role that does as much as it can of one thing
#	make fleet [SESSIONS=n]		what 1,000 servers cost three ZooKeepers, also after an outage
#	make split-brain [CUTS=n]	cuts primaries off, with zklock.commit_requires and without
#	make deadlock-storm [SECONDS=n]	locks in random orders; a checker knows the true deadlocks
#	make sanitize				pg_regress, isolation tests and walks with AddressSanitizer and UBSan
#	make assertions				the same on a PostgreSQL with assertions, built from source
#	make valgrind				the same on servers in valgrind's memcheck
#	make check-layers			which file may include, call and write what
#	make indent, check-indent	PostgreSQL's own code layout
#	make deb					Debian packages, in test/out/deb
#	make dist					the bundle for PGXN, in test/out/dist
#	make dist-check				takes it as a user does: unpacked, built, installed and tested
#	make extension-image		loads zklock from a directory of its own, on a PostgreSQL 18
#	make release VERSION=n		the version in all places, and the tag
#	make matrix [SMOKE=1]		the tests on each release of Debian, in chroots, or some of them
#
# PG_VERSION=n chooses one of Debian's versions of PostgreSQL; the default is the latest
# that is installed, or else the release's own.
#
# WERROR=1 turns warnings into errors.  FAULTS=1 compiles the fault points and all assertions
# in, for tests only (src/faultpoint.h); "make clean" comes before and after that.

EXTENSION  = zklock
RELEASE   := $(shell sed -n 's/^   "version": "\(.*\)",$$/\1/p' $(or $(srcdir),.)/META.json)
DATA       = zklock--1.0.sql zklock--1.0--1.1.sql zklock--1.1--1.2.sql zklock--1.2--1.1.sql
MODULE_big = zklock
PROGRAMS   = zklock-run
PGFILEDESC = "zklock - cluster-wide locks through ZooKeeper"
SHLIB_LINK = -lzookeeper_st

# TLS to ZooKeeper, where PostgreSQL was built with OpenSSL.
SHLIB_LINK += $(if $(filter openssl,$(with_ssl)),-lssl -lcrypto)

# The library's calls of its own functions need no look-up at run time.
SHLIB_LINK += $(if $(filter linux,$(PORTNAME)),-Xlinker -Bsymbolic-functions)

# Pure C: these files know neither PostgreSQL nor ZooKeeper, so that "make unit" can
# compile them alone.
PURE         = $(sort $(wildcard src/protocol/*.c)) \
	src/deadlock/waitgraph.c src/deadlock/waitrecord.c src/jobs/jobrecord.c
HEADER_FILES = $(wildcard src/*.h src/*/*.h src/*/*/*.h)
SOURCES      = $(sort $(wildcard src/*.c src/*/*.c src/*/*/*.c))
CLIENTS      = $(wildcard src/bin/*.c)

OBJS = $(patsubst %.c,%.o,$(filter-out src/faultpoint.c $(CLIENTS),$(SOURCES)))
PG_CPPFLAGS = -I$(srcdir)/src -DZKLOCK_VERSION='"$(RELEASE)"'

ifdef FAULTS
OBJS += src/faultpoint.o
endif

# PGXS builds a library or a program, not both.  To it, the program is a script, which
# it installs in the same way.
SCRIPTS_built = $(PROGRAMS)

# "make installcheck" is for any server that has zklock preloaded.  The TAP
# tests start servers and ZooKeepers of their own and need more packages, so
# they are left to "make test".
REGRESS        := $(sort $(patsubst sql/%.sql,%,$(wildcard sql/*.sql)))
ISOLATION      := $(sort $(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec)))
ISOLATION_OPTS  = --inputdir=test

# With log_lock_waits, a client that waits gets a NOTICE sooner or later.
# A leadership is a lock that never ends, and the tests wait until no lock is held.
installcheck: refuse-leaderships
refuse-leaderships:
	@leads=$$('$(bindir)/psql' -XAtqd postgres -c 'SHOW zklock.leader_of' 2>/dev/null); [ -z "$$leads" ] || \
		{ echo "make installcheck: not on a server that stands for leaderships: zklock.leader_of is \"$$leads\"" >&2; exit 1; }

installcheck: export PGOPTIONS := $(PGOPTIONS) -c log_lock_waits=off

UNIT_TESTS  := $(patsubst %.c,%,$(wildcard test/unit/test_*.c))
EXTRA_CLEAN  = $(UNIT_TESTS) test/unit/*.o test/fuzz/fuzz src/*.o src/*/*.o src/*/*/*.o test/out typedefs.list tmp_check

ifdef PG_VERSION
PG_CONFIG ?= /usr/lib/postgresql/$(PG_VERSION)/bin/pg_config
export PG_VERSION
endif
PG_CONFIG ?= pg_config

# PostgreSQL's own headers do not compile cleanly under these two parts of -Wextra.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare
ifdef WERROR
PG_CFLAGS += -Werror
endif
ifdef FAULTS
PG_CFLAGS += -DZKLOCK_FAULTS -DUSE_ASSERT_CHECKING
endif

# PostgreSQL hands down the options and attributes of the compiler that built it, and 19 has a macro that casts
# functions.
ifneq ($(findstring clang,$(CC)),)
PG_CFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes \
	-Wno-cast-function-type-strict
endif

# A failed assertion ends the whole server: only servers that assert themselves get those of
# the pure code, and the tests with fault points get all.
ifeq ($(FAULTS)$(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure 2>/dev/null)),)
PG_CFLAGS += -DNDEBUG
endif

# Bitcode for JIT would need the clang that built PostgreSQL, and inlining lock
# functions into queries gains nothing.  (An assignment here would be overridden
# by PGXS; "make with_llvm=yes" still works.)
ifneq ($(origin with_llvm),command line)
override with_llvm = no
endif

.DEFAULT_GOAL = all

# Without PostgreSQL's development files, "test" and "demo" must still work: they
# install what is missing.
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))
ifneq ($(PGXS),)
include $(PGXS)

# man looks for pages beside the directory of the program, and Debian's PostgreSQL has its
# pages elsewhere.  "make install mandir=..." chooses another place.
ifeq ($(filter $(abspath $(bindir)/../man $(bindir)/../share/man),$(abspath $(mandir))),)
mandir = /usr/local/share/man
endif

zklock-run: $(CLIENTS) $(HEADER_FILES) META.json
	$(CC) $(CFLAGS) $(CPPFLAGS) -I$(libpq_srcdir) \
		$(CLIENTS) -o $@ $(LDFLAGS) $(LDFLAGS_EX) $(libpq) -lm

install: install-man
install-man:
	$(MKDIR_P) '$(DESTDIR)$(mandir)/man1'
	$(INSTALL_DATA) $(patsubst %,$(srcdir)/src/bin/%.1,$(PROGRAMS)) '$(DESTDIR)$(mandir)/man1/'

uninstall: uninstall-man
uninstall-man:
	rm -f $(patsubst %,'$(DESTDIR)$(mandir)/man1/%.1',$(PROGRAMS))
else
all install installcheck clean:
	@echo "PostgreSQL's development files are missing: test/packages build installs them" >&2
	@false
endif

# A change in a header rebuilds everything: cheap at this size, and never wrong.
$(OBJS): $(HEADER_FILES) META.json

# The comment at the beginning of this file.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//; p' '$(firstword $(MAKEFILE_LIST))'

# --- unit tests ---------------------------------------------------------------

UNIT_CFLAGS = -std=c99 -O1 -Wall -Wextra -Werror -g -fsanitize=address,undefined \
	-fno-sanitize-recover=all -Isrc

# The pure code is compiled once for all tests.
UNIT_OBJS = $(addprefix test/unit/,$(notdir $(PURE:.c=.o)))

vpath %.c $(sort $(dir $(PURE)))

$(UNIT_OBJS): test/unit/%.o: %.c $(HEADER_FILES)
	$(CC) $(UNIT_CFLAGS) -c $< -o $@

$(UNIT_TESTS): %: %.c $(wildcard test/unit/*.h) $(UNIT_OBJS) $(HEADER_FILES)
	$(CC) $(UNIT_CFLAGS) $< $(UNIT_OBJS) -o $@ -lcmocka

# With -j, several run at a time; what each prints stays together.
UNIT_RUNS = $(addsuffix .run,$(UNIT_TESTS))

$(UNIT_RUNS): %.run: %
	@echo "# $<"; ./$<

unit:
	@$(MAKE) --no-print-directory --keep-going --output-sync=target $(UNIT_RUNS)

# --- fuzzing -------------------------------------------------------------------

# libFuzzer comes with clang.  What it finds to be of interest stays in test/out/fuzz; the
# corpus in the tree has one text of each kind.
FUZZ = test/fuzz/fuzz

$(FUZZ): test/fuzz/fuzz.c $(PURE) $(HEADER_FILES)
	clang -std=c99 -Wall -Wextra -Werror -g -O1 -fsanitize=fuzzer,address,undefined \
		-fno-sanitize-recover=all -Isrc $< $(PURE) -o $@

fuzz: $(FUZZ)
	@mkdir -p test/out/fuzz
	./$(FUZZ) $(if $(RUNS),-runs=$(RUNS),-max_total_time=$(or $(SECONDS),60)) -max_len=4096 \
		-verbosity=0 -print_final_stats=1 -artifact_prefix=test/out/fuzz/ \
		test/out/fuzz test/fuzz/corpus

# --- a fleet -------------------------------------------------------------------

# Sessions that play the workers of many servers, for "make fleet".
FLEET = test/out/sessions

$(FLEET): $(wildcard test/fleet/*.[ch]) $(PURE) $(HEADER_FILES)
	@mkdir -p $(@D)
	$(CC) -std=gnu99 -Wall -Wextra -Werror -g -O2 -Isrc $(filter %.c,$^) -o $@ -lzookeeper_st

# --- model ----------------------------------------------------------------------

model:
	@test/model/run

# --- layering and layout ------------------------------------------------------

check-layers: zklock.so
	@test/check-layers

# The options are those of PostgreSQL's pgindent, and the sed repeats the one
# clean-up step of that script that matters here.  The names of types come from
# the debug information of the library just built.  Versions of pg_bsd_indent differ in
# what they do with a declaration of several lines; PostgreSQL 16 and later bring 2.1.2.
INDENT = pg_bsd_indent -bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 \
	-nfc1 -i4 -l79 -lp -lpl -nip -npro -sac -tpg -ts4 -Utypedefs.list
INDENTED = $(INDENT) < $$f | sed -E 's/^([A-Za-z_][^ \t]*)[ \t]+\*$$/\1 */'

typedefs.list: zklock.so $(PROGRAMS)
	{ objdump -Wi $^ | awk '/Abbrev Number/ {t = ($$0 ~ /DW_TAG_typedef/)} \
		t && /DW_AT_name/ {sub(/.*: /, ""); sub(/[ \t]+$$/, ""); print; t = 0}'; \
	  echo bool; } | sort -u > $@

have-indent:
	@pg_bsd_indent --version 2>/dev/null | grep -qF ' 2.1.1 ' || \
		{ echo "this needs pg_bsd_indent 2.1.1" >&2; false; }

indent: have-indent typedefs.list
	@for f in $(SOURCES) $(HEADER_FILES); do $(INDENTED) > $$f.new && mv $$f.new $$f; done

check-indent: have-indent typedefs.list
	@changed=0; for f in $(SOURCES) $(HEADER_FILES); do \
		$(INDENTED) | diff -u --label $$f --label "$$f, indented" $$f - || changed=1; \
	done; exit $$changed

# --- everything ---------------------------------------------------------------

test:
	@test/run

check-world:
	@test/check-world

mutants:
	@test/mutants

sanitize:
	@SANITIZE=1 test/run checked

assertions:
	@test/assertions checked

valgrind:
	@test/valgrind

soak:
	@test/soak $(HOURS)

abuse:
	@test/abuse $(SECONDS)

fleet:
	@test/fleet/run $(SESSIONS)

split-brain:
	@test/split-brain $(CUTS)

deadlock-storm:
	@STORM_SECONDS=$(or $(SECONDS),60) test/run tap deadlock_storm

demo:
	@test/demo

faults:
	@test/faults/run $(or $(SEED),$(shell date +%s)) $(or $(RUNS),1) $(or $(SECONDS),60)

faults-five:
	@FAULT_SERVERS=5 FAULT_CLIENTS=10 FAULT_ZOOKEEPERS=5 FAULT_OBSERVERS=2 FAULT_MOST=20 \
		test/faults/run $(or $(SEED),$(shell date +%s)) $(or $(RUNS),1) $(or $(SECONDS),150)

bench:
	@test/bench/run workloads="$(WORKLOADS)" rounds=$(ROUNDS) seconds=$(SECONDS) ensembles="$(ENSEMBLES)"

bench-doc:
	@perl -Itest/bench test/bench/report csv=test/out/bench.csv svg=doc/bench.svg \
		docs="doc/performance.md test/bench/RESULTS.md README.md"

instructions:
	@test/bench/instructions

bench-compare:
	@test/bench/compare "$(BASE)"

deb:
	@package/deb

dist:
	@package/dist

dist-check:
	@test/dist

extension-image:
	@test/on sid 18 tap 316_extension_image

release:
	@package/release $(VERSION)

matrix:
	@package/matrix $(RELEASES)

.PHONY: $(UNIT_RUNS) all help install-man uninstall-man unit fuzz model instructions check-layers have-indent indent check-indent test check-world mutants sanitize assertions valgrind demo faults faults-five abuse fleet split-brain soak deadlock-storm bench bench-doc bench-compare deb dist dist-check extension-image release matrix
