
# How package/matrix counts: what cannot be prepared is skipped by name in the short form, and
# has failed in the long one.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run;
use Test::More;

use PostgreSQL::Test::Utils;

my $top = abs_path(dirname(__FILE__) . '/../..');

# The last lines of what a command prints, and whether it succeeds.
sub result_of
{
	my ($command, %env) = @_;
	local %ENV = (%ENV, %env);
	IPC::Run::run($command, '<', \'', '>', \my $out, '2>', \my $err, init => sub { chdir $top or die $! });
	return [ $? >> 8, ($out =~ /^== result\n(.*)/ms)[0] ];
}

# This test is not run as root, so no chroot can be made.
is_deeply(result_of([ 'package/matrix', 'trixie', 'sid' ], SMOKE => 1),
	[ 0, "skipped: trixie: its chroot cannot be prepared here\nskipped: sid: its chroot cannot be prepared here\n"
		  . "0 passed, 0 failed, 2 skipped\n" ],
	'the short form skips what cannot be prepared');
is_deeply(result_of([ 'package/matrix', 'trixie' ], SMOKE => ''),
	[ 1, "FAILED: trixie: its chroot cannot be prepared here\n0 passed, 1 failed\n" ],
	'in the long form, it has failed');

done_testing();
