
# How package/matrix and test/check-world count: tests that fail or break off have failed; a step that cannot
# be prepared, or for which there is no time, is skipped by name in the short form and has failed in
# the long one.  The commands that make and enter a chroot are replaced.  And which steps the workflows
# of a hosted CI have, for each PostgreSQL and Debian.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Copy qw(copy);
use File::Path qw(make_path);
use IPC::Run;
use JSON::PP qw(decode_json);
use Test::More;

use PostgreSQL::Test::Utils;

my $top = abs_path(dirname(__FILE__) . '/../..');
my $scratch = PostgreSQL::Test::Utils::tempdir;

sub script
{
	my ($name, $text) = @_;
	make_path(dirname("$scratch/$name"));
	unlink "$scratch/$name";
	append_to_file("$scratch/$name", "#!/bin/bash\n$text\n");
	chmod 0755, "$scratch/$name" or die $!;
	return;
}

# The exit status of a command, and its last lines.
sub result_of
{
	my ($command, $dir, %env) = @_;
	local %ENV = (%ENV, %env);
	IPC::Run::run($command, '<', \'', '>', \my $out, '2>', \my $err, init => sub { chdir $dir or die $! });
	return [ $? >> 8, ($out =~ /^== (?:result|all)\n(.*)/ms)[0] ];
}

# --- package/matrix -------------------------------------------------------------

my $no_chroot = 'its chroot cannot be prepared here';

sub matrix { my ($release, %env) = @_; return result_of([ 'package/matrix', @$release ], $top, %env); }

# This test is not run as root, so no chroot can be made.
is_deeply(matrix([ 'bookworm', 'trixie' ], SMOKE => 1),
	[ 0, "skipped: bookworm: $no_chroot\nskipped: trixie: $no_chroot\n0 passed, 0 failed, 2 skipped\n" ],
	'the short form skips what cannot be prepared');
is_deeply(matrix(['trixie'], SMOKE => ''),
	[ 1, "FAILED: trixie: $no_chroot\n0 passed, 1 failed\n" ],
	'in the long form, it has failed');

# The user is root and can make chroots, and a chroot of trixie exists already: a command in it does
# what the variable of its name says, and by default succeeds.
script('bin/id', 'echo 0');
script('bin/wget', 'exit 4');
script('bin/debootstrap', '');
script('bin/unshare', <<'END');
case "$*" in
	*/test/packages*) eval "${PREPARATION:-}" ;;
	*dpkg-query*) echo 'postgresql-17 17.1'; echo 'libzookeeper-java 3.9.3' ;;
	*test/run*) eval "${TESTS:-echo 7 passed, 0 failed}" ;;
	*/package/installcheck*) eval "${PACKAGES:-}" ;;
	*) exit 1 ;;
esac
END
make_path((map { "$scratch/matrix/trixie/$_" } 'etc', 'root', 'made'), { mode => 0755 });

sub short
{
	my ($release, %env) = @_;
	return matrix([$release], SMOKE => 1, MATRIX_DIR => "$scratch/matrix", PATH => "$scratch/bin:$ENV{PATH}", %env);
}

is_deeply(short('trixie'), [ 0, "7 passed, 0 failed\n" ], 'a release that passes');
is_deeply(short('trixie', TESTS => 'echo 6 passed, 1 failed, 2 skipped; exit 1'),
	[ 1, "FAILED: trixie\n6 passed, 1 failed, 2 skipped\n" ], 'tests that fail');
is_deeply(short('trixie', TESTS => 'echo t: 7 passed, 0 failed; exit 1'),
	[ 1, "FAILED: trixie: broke off\n0 passed, 1 failed\n" ], 'tests that break off');
is_deeply(short('trixie', PACKAGES => 'exit 1'),
	[ 1, "FAILED: trixie: the packages\n7 passed, 1 failed\n" ], 'packages that fail');
is_deeply(short('trixie', PREPARATION => 'exit 1'),
	[ 0, "skipped: trixie: $no_chroot\n0 passed, 0 failed, 1 skipped\n" ], 'packages that are not to be had');
is_deeply(short('bookworm'),
	[ 0, "skipped: bookworm: $no_chroot\n0 passed, 0 failed, 1 skipped\n" ], "no way to Debian's servers");

# Root runs programs in the directory of the chroots, so another user's directory is refused: the
# same chroot exists, but others may write into it, or it is behind a symbolic link, or another user
# owns it.
chmod 0777, "$scratch/matrix" or die $!;
is_deeply(short('trixie'),
	[ 0, "skipped: trixie: $no_chroot\n0 passed, 0 failed, 1 skipped\n" ], 'a directory that others may write into');
chmod 0755, "$scratch/matrix" or die $!;
symlink "$scratch/matrix", "$scratch/link" or die $!;
is_deeply(short('trixie', MATRIX_DIR => "$scratch/link"),
	[ 0, "skipped: trixie: $no_chroot\n0 passed, 0 failed, 1 skipped\n" ], 'a symbolic link');
is_deeply(short('trixie', MATRIX_DIR => '/usr'),
	[ 0, "skipped: trixie: $no_chroot\n0 passed, 0 failed, 1 skipped\n" ], 'a directory of another user');
is_deeply(short('trixie', MATRIX_DIR => "$scratch/new/matrix"),
	[ 0, "skipped: trixie: $no_chroot\n0 passed, 0 failed, 1 skipped\n" ], "a new directory, without a way to Debian's servers");
is((stat "$scratch/new/matrix")[2] & 07777, 0700, 'which is for its owner alone');

# With MINUTES=0, each step has a second.  The step that takes for ever is the first one; later ones
# only break off, so that a slow machine does not decide in which step the time ends.
is_deeply(short('trixie', MINUTES => 0, PREPARATION => 'exec sleep infinity'),
	[ 0, "skipped: trixie: there was no time to prepare its chroot\n0 passed, 0 failed, 1 skipped\n" ],
	'a preparation that takes too long');
script('bin/timeout', 'shift 4; exec "$@"');
is_deeply(short('trixie', MINUTES => 0, TESTS => 'echo t: 7 passed, 0 failed; exit 137'),
	[ 0, "skipped: trixie: there was no time for all of its tests\n0 passed, 0 failed, 1 skipped\n" ],
	'tests that take too long');
foreach my $line ('t: 7 passed, 1 failed', 'not ok 5 - a', 'a build: FAILED')
{
	is_deeply(short('trixie', MINUTES => 0, TESTS => "echo '$line'; exit 137"),
		[ 1, "FAILED: trixie: broke off\n0 passed, 1 failed\n" ], "tests that take too long after \"$line\"");
}
is_deeply(short('trixie', MINUTES => 0, PACKAGES => 'exit 137'),
	[ 0, "skipped: trixie: there was no time to try its packages\n7 passed, 0 failed, 1 skipped\n" ],
	'packages that take too long');

# --- test/check-world -------------------------------------------------------------

# This test may run with a bound itself.
delete $ENV{UNTIL};

# Each step prints and does what the variable of its name says.  What is not set is not to be reached.
script('test/run', 'echo "$*${UNTIL:+ until $UNTIL}" >>"$LOG"; [[ $1 != rest ]] || TESTS=$REST; eval "$TESTS"');
script('test/headers', 'echo headers >>"$LOG"; eval "$HEADERS"');
script('package/matrix', '[[ $SMOKE == 1 ]] && echo "matrix $MINUTES" >>"$LOG" && eval "$MATRIX"');
script('test/assertions', '[[ $1 != prepare ]] || TESTS=$PREPARE; echo "assertions $*" >>"$LOG"; eval "$TESTS"');
append_to_file("$scratch/Makefile",
	".PHONY: test assertions\ntest:\n\t\@test/run\nassertions:\n\t\@TESTS='\$(ASSERTIONS)' test/assertions regress\n");
make_path("$scratch/.ci");
copy("$top/$_", "$scratch/$_") or die $! foreach '.ci/run', 'test/check-world';
chmod 0755, "$scratch/test/check-world" or die $!;

my $good = 'echo == result; echo 5 passed, 0 failed';
my %steps = (TESTS => $good, REST => $good, HEADERS => $good, MATRIX => $good, PREPARE => 'true', ASSERTIONS => $good, LOG => "$scratch/log");

# What the steps were asked for, what check-world says at its end, and its exit status.
sub world
{
	my ($command, %env) = @_;
	unlink "$scratch/log";
	my ($status, $sum) = @{ result_of($command, $scratch, %steps, %env) };
	my $asked = slurp_file("$scratch/log") =~ s/until (\d+)/'until in ' . int(($1 - time) \/ 60 + 0.5)/gre;
	return ($asked, $sum =~ s/.*^== all\n//msr, $status);
}

sub sum_is
{
	my ($what, $env, $status, $sum, $minutes) = @_;
	my (undef, $said, $exit) = world([ 'bash', 'test/check-world', $minutes // () ], %$env);
	is_deeply([ $exit, $said ], [ $status, $sum ], "check-world: $what");
	return;
}

is_deeply([ world([ 'bash', 'test/check-world' ]) ],
	[ "\nrest\nheaders\nmatrix 20\nassertions prepare\nassertions regress\n", "25 passed, 0 failed\n", 0 ],
	'make check-world: everything, without a bound');
is_deeply([ world([ 'bash', '.ci/run' ]) ],
	[ " until in 72\nrest until in 72\nheaders\nmatrix 20\nassertions prepare\nassertions regress\n", "25 passed, 0 failed\n", 0 ],
	'.ci/run: everything, with 80 minutes');

sum_is('noise', { TESTS => "echo noise; $good" }, 0, "25 passed, 0 failed\n");
sum_is('what is skipped is named',
	{ REST => 'echo == result; echo skipped: a: why; echo 9 passed, 0 failed, 1 skipped', MATRIX => 'echo 0 passed, 0 failed, 2 skipped' },
	0, "skipped: a: why\n24 passed, 0 failed, 3 skipped\n");
sum_is('what failed is named, and all goes on',
	{ TESTS => 'echo == result; echo FAILED: a; printf "\\tnot ok 3\\n"; echo 9 passed, 1 failed; exit 1' },
	1, "FAILED: a\n\tnot ok 3\n29 passed, 1 failed\n");
sum_is('no last line', { TESTS => "$good; echo" }, 1, "FAILED: make test: broke off\n20 passed, 1 failed\n");
sum_is('no line at all', { MATRIX => 'exit 1' }, 1, "FAILED: another release of Debian: broke off\n20 passed, 1 failed\n");
sum_is('a status that its last line does not explain',
	{ REST => "$good; exit 3" }, 1, "FAILED: the rest of test/run: broke off\n25 passed, 1 failed\n");
sum_is('no PostgreSQL with assertions', { PREPARE => 'false' },
	0, "skipped: assertions: the PostgreSQL for them cannot be built here in time\n20 passed, 0 failed, 1 skipped\n");

my $no_time = 'there was no time left';
my %left_out = (
	rest => "skipped: the rest of test/run: $no_time\n",
	headers => "skipped: the headers of each PostgreSQL: $no_time\n",
	matrix => "skipped: other releases of Debian: $no_time\n",
	assertions => "skipped: assertions: $no_time\n");
sum_is('9 minutes', {}, 0, "$left_out{matrix}20 passed, 0 failed, 1 skipped\n", 9);
sum_is('80 minutes, of which 72 are over', { SECONDS => 4320 }, 0,
	join('', @left_out{ 'rest', 'headers', 'matrix', 'assertions' }) . "5 passed, 0 failed, 4 skipped\n", 80);
sum_is('a step that hangs', { SECONDS => 118, TESTS => 'exec sleep infinity' }, 1,
	join('', 'FAILED: make test: broke off' . "\n", @left_out{ 'rest', 'headers', 'matrix', 'assertions' }) . "0 passed, 1 failed, 4 skipped\n", 2);

# --- the workflows of a hosted CI ------------------------------------------------

# Their steps are shell: each is run here, for each combination of its matrix, in a container whose tools
# say what they are asked for.  Debian has one version of PostgreSQL a release.
script("ci/bin/$_", "echo \"$_ \$*\"") foreach qw(apt-get git make);
script('ci/bin/apt-cache', 'case "$DEBIAN $2" in "debian:bookworm postgresql-15" | "debian:trixie postgresql-17") echo "  Candidate: 1" ;;'
	  . ' *) echo "  Candidate: (none)" ;; esac');
script('ci/pgdg', 'echo "pgdg $*"');
make_path("$scratch/ci/.ci");
symlink "$top/.ci/prepare", "$scratch/ci/.ci/prepare" or die $!;
script('ci/.ci/run', 'echo all');

sub combinations
{
	my (%matrix) = @_;
	my @all = ({});
	foreach my $key (sort keys %matrix)
	{
		@all = map { my $one = $_; map { { %$one, $key => $_ } } @{ $matrix{$key} } } @all;
	}
	return @all;
}

# What the steps of a job print, and which PostgreSQL on which Debian they are for.
sub run_job
{
	my ($job) = @_;
	my %ran;
	foreach my $values (combinations(%{ $job->{strategy}{matrix} }))
	{
		my $fill = sub { return $_[0] =~ s/\$\{\{ matrix\.(\w+) \}\}/$values->{$1} \/\/ die "no $1"/ger; };
		my %env = map { $_ => $fill->($job->{env}{$_}) } keys %{ $job->{env} // {} };
		my $image = $fill->($job->{container}{image});
		my $printed = '';
		foreach my $step (grep { $_->{run} } @{ $job->{steps} })
		{
			local %ENV = (%ENV, PG_VERSION => '', %env, DEBIAN => $image, PGDG => "$scratch/ci/pgdg", PATH => "$scratch/ci/bin:$ENV{PATH}");
			my $ok = IPC::Run::run([ 'bash', '-e', '-c', $step->{run} ], '<', \'', '>', \my $out, '2>', \my $messages,
				init => sub { chdir "$scratch/ci" or die $! });
			$printed .= $out . ($ok ? '' : "FAILED: $step->{run}: $messages");
		}
		$ran{ join ' ', $image, grep { length } $env{PG_VERSION} // '' } = $printed;
	}
	return \%ran;
}

sub prepared
{
	my ($pgdg) = @_;
	return "apt-get update -q\napt-get install -y -q --no-install-recommends ca-certificates git make postgresql-common\n"
	  . ($pgdg ? "pgdg -y\n" : '') . "git config --global --add safe.directory $scratch/ci\n";
}

my %workflow = map {
	IPC::Run::run([ 'python3', '-c', 'import json, sys, yaml; print(json.dumps(yaml.load(sys.stdin, yaml.BaseLoader)))' ],
		'<', "$top/.github/workflows/$_.yml", '>', \my $json) or die "$_.yml";
	$_ => decode_json($json)
} 'check', 'nightly';
my @releases = ('debian:bookworm', 'debian:trixie');
my ($versions) = slurp_file("$top/debian/pgversions") =~ /^(\d+)\+/m;
my %everywhere = map { my $image = $_; map { ("$image $_" => "$image $_" !~ /bookworm 15|trixie 17/) } $versions .. 18 } @releases;
is_deeply($workflow{check}{on}, [ 'push', 'pull_request' ], 'check.yml: for each change');
is_deeply(run_job($workflow{check}{jobs}{check}), { map { $_ => prepared($everywhere{$_}) . "make test\n" } keys %everywhere },
	'check.yml: make test on each PostgreSQL and Debian');
ok($workflow{nightly}{on}{schedule}[0]{cron} =~ /^\d+ \d+ \* \* \*$/, 'nightly.yml: every night');
is_deeply(run_job($workflow{nightly}{jobs}{test}), { map { $_ => prepared('') . "all\n" } @releases },
	'nightly.yml: .ci/run on each Debian');
is_deeply(run_job($workflow{nightly}{jobs}{bundle}), { map { $_ => prepared($everywhere{$_}) . "make dist-check\n" } keys %everywhere },
	'nightly.yml: the bundle on each PostgreSQL and Debian');

done_testing();
