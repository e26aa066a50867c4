
# VALGRIND=1 finds an error that is planted in zklock, and tells it from errors elsewhere.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use Test::More;

use PostgreSQL::Test::Utils;

my $top = "$FindBin::RealBin/../..";
my $lab = PostgreSQL::Test::Utils::tempdir('valgrind');

# What a command prints, and whether it succeeds.
sub result_of
{
	my (@command) = @_;
	local %ENV = (%ENV, LAB => $lab, VALGRIND => 1);
	delete $ENV{UNTIL};
	IPC::Run::run(\@command, '<', \'', '>', \my $out, '2>&1');
	return ($? >> 8, $out);
}

# --- what is in the logs of servers ---

# The same error in two processes, whose lines mix.
my $planted = q{a server starts in memcheck
==11== BEGIN
==11== Conditional jump or move depends on uninitialised value(s)
==12== BEGIN
==11==    at 0x4BCD: zklock_version (LAB/tree/src/backend/sql/servers.c:42)
==12== Conditional jump or move depends on uninitialised value(s)
==12==    at 0x5BCD: zklock_version (LAB/tree/src/backend/sql/servers.c:42)
2026-01-01 00:00:00 UTC [11] LOG:  a line of the server
==12==    by 0x1111: ExecInterpExpr (in /usr/lib/postgresql/15/bin/postgres)
==11==    by 0x1111: ExecInterpExpr (in /usr/lib/postgresql/15/bin/postgres)
==11== END
==12== END
};
my $others = q{a server starts in memcheck
==13== BEGIN
==13== Syscall param pwrite64(buf) points to uninitialised byte(s)
==13==    at 0x2222: pwrite (pwrite64.c:25)
==13==    by 0x3333: XLogWrite (in /usr/lib/postgresql/15/bin/postgres)
==13== END
};
my $library = $others =~ s/by .*/by 0x4444: ??? (in LAB\/stage\/lib\/zklock.so)/r;

sub found
{
	my (%logs) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir;
	append_to_file("$dir/$_.log", $logs{$_} =~ s/LAB/$lab/gr) foreach keys %logs;
	my ($status, $out) = result_of('bash', '-c', 'source "$0/test/lab.bash"; lab=$LAB; lab_memcheck_found "$1"', $top, $dir);
	return ($status, scalar(() = $out =~ /^(?:Conditional|Syscall)/mg), $out =~ /^(memcheck: .*)/m);
}

is_deeply([ found(a => $planted, b => $others) ],
	[ 0, 1, 'memcheck: 2 starts of servers, 2 errors, 1 of them in zklock' ], 'one error of zklock, one of others');
is_deeply([ found(a => $library) ],
	[ 0, 1, 'memcheck: 1 starts of servers, 1 errors, 1 of them in zklock' ], 'an error of the library, without debug information');
is_deeply([ found(a => $others) ],
	[ 1, 0, 'memcheck: 1 starts of servers, 1 errors, 0 of them in zklock' ], 'none of zklock');
is_deeply([ found(a => "2026-01-01 00:00:00 UTC [11] LOG:  a line of the server\n") ],
	[ 0, 0, 'memcheck: 0 starts of servers, 0 errors, 0 of them in zklock' ], 'no server was watched');

# --- a server ---

# A copy of the tree and of the objects that were built from it, with a function that reads memory
# that nothing has written.
system_or_bail('cp', '-a', $top, "$lab/tree");
my $source = slurp_file("$lab/tree/src/backend/sql/servers.c");
$source =~ s/^zklock_version\(.*\)\n\{\n/$&\tvolatile int *planted = malloc(sizeof(int));\n\n/m or die;
$source =~ s/^\tPG_RETURN_TEXT/\tif (*planted == 4711)\n\t\telog(LOG, "planted");\n$&/m or die;
unlink "$lab/tree/src/backend/sql/servers.c";
append_to_file("$lab/tree/src/backend/sql/servers.c", $source);
append_to_file("$lab/tree/test/t/planted.pl", q{
	use Test::More;
	use ZklockNode;
	my $node = ZklockNode->initialized('a', undef, 'zklock.hosts' => '127.0.0.1:1');
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
	like($node->safe_psql('postgres', 'SELECT zk_version()'), qr/^\d/, 'it works');
	$node->stop;
	done_testing();
});

my ($status, $out) = result_of("$lab/tree/test/run", 'tap', 'planted');
is($status, 1, 'an error is planted: test/run fails');
like($out, qr/^Conditional jump or move depends on uninitialised value\(s\)\n.* zklock_version \(/m, 'it shows the error');
like($out, qr/^memcheck: 1 starts of servers, \d+ errors, 1 of them in zklock$/m, 'it counts the error');
like($out, qr/^planted: 1 passed, 0 failed, exit status 1$/m, 'whereas the test itself succeeds');
like($out, qr/^1 passed, 1 failed\n\z/m, 'the last line');

done_testing();
