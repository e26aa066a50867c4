
# How package/matrix and .ci/run count: tests that fail or break off have failed; a step that cannot
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

# --- .ci/run --------------------------------------------------------------------

# Both parts print and do what the variables of their names say.
script('test/run', 'eval "${TESTS:-}"');
script('package/matrix', '[[ $SMOKE == 1 ]] && eval "${MATRIX:-}"');
append_to_file("$scratch/Makefile", ".PHONY: test\ntest:\n\t\@test/run\n");
make_path("$scratch/.ci");
copy("$top/.ci/run", "$scratch/.ci/run") or die $!;

sub sum_is
{
	my ($tests, $matrix, $env, @sum) = @_;
	is_deeply(result_of([ 'bash', '.ci/run' ], $scratch, TESTS => $tests, MATRIX => $matrix, %$env),
		\@sum, "continuous integration: $tests; $matrix");
	return;
}

my $good = 'echo 5 passed, 0 failed';
sum_is('echo noise; echo 9 passed, 0 failed', $good, {}, 0, "14 passed, 0 failed\n");
sum_is('echo 9 passed, 0 failed, 1 skipped', 'echo 0 passed, 0 failed, 2 skipped', {}, 0, "9 passed, 0 failed, 3 skipped\n");
sum_is('echo 9 passed, 1 failed; exit 1', $good, {}, 1, "14 passed, 1 failed\n");
sum_is($good, 'echo 5 passed, 2 failed, 1 skipped; exit 1', {}, 1, "10 passed, 2 failed, 1 skipped\n");
sum_is('echo 9 passed, 0 failed; echo', $good, {}, 1, "5 passed, 1 failed\n");
sum_is($good, 'exit 1', {}, 1, "5 passed, 1 failed\n");
sum_is('echo 9 passed, 0 failed; exit 3', $good, {}, 1, "14 passed, 1 failed\n");
sum_is($good, 'echo 7 passed, 0 failed', { SECONDS => 3900 }, 0, "5 passed, 0 failed, 1 skipped\n");

# --- the workflows of a hosted CI ------------------------------------------------

# Their steps are shell: each is run here, for each combination of its matrix, in a container whose tools
# say what they are asked for.  Debian has one version of PostgreSQL a release.
script("ci/bin/$_", "echo \"$_ \$*\"") foreach qw(apt-get git make);
script('ci/bin/apt-cache', 'case "$DEBIAN $2" in "debian:bookworm postgresql-15" | "debian:trixie postgresql-17") echo "  Candidate: 1" ;;'
	  . ' *) echo "  Candidate: (none)" ;; esac');
script('ci/pgdg', 'echo "pgdg $*"');
symlink "$top/.ci", "$scratch/ci/.ci" or die $!;

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
is_deeply(run_job($workflow{check}{jobs}{check}), { map { $_ => prepared($everywhere{$_}) . "make check\n" } keys %everywhere },
	'check.yml: make check on each PostgreSQL and Debian');
ok($workflow{nightly}{on}{schedule}[0]{cron} =~ /^\d+ \d+ \* \* \*$/, 'nightly.yml: every night');
is_deeply(run_job($workflow{nightly}{jobs}{test}), { map { $_ => prepared('') . "make test\n" } @releases },
	'nightly.yml: make test on each Debian');
is_deeply(run_job($workflow{nightly}{jobs}{bundle}), { map { $_ => prepared($everywhere{$_}) . "make dist-check\n" } keys %everywhere },
	'nightly.yml: the bundle on each PostgreSQL and Debian');

done_testing();
