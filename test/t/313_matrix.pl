
# How package/matrix and .ci/run count: what fails or breaks off has failed; what cannot be
# prepared, or for which there is no time, is skipped by name in the short form and has failed in
# the long one.  What makes and enters a chroot is replaced.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Copy qw(copy);
use File::Path qw(make_path);
use IPC::Run;
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

# A root who can make chroots, where a chroot of trixie is there already: what is to be run in it does
# what the variable of that name says, and by default succeeds.
script('bin/id', 'echo 0');
script('bin/wget', 'exit 4');
script('bin/debootstrap', '');
script('bin/unshare', <<'END');
case "$*" in
	*/test/packages*) eval "${PREPARATION:-}" ;;
	*dpkg-query*) echo 'postgresql-17 17.1'; echo 'libzookeeper-java 3.9.3' ;;
	*test/run*) eval "${TESTS:-echo 7 passed, 0 failed}" ;;
	*/package/try*) eval "${PACKAGES:-}" ;;
	*) exit 1 ;;
esac
END
make_path(map { "$scratch/matrix/trixie/$_" } 'etc', 'root', 'made');

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

# With MINUTES=0, each step has a second.  The step that takes for ever is the first one; later ones
# only break off, so that a slow machine does not decide which one the time ends in.
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

done_testing();
