
# Counts that do not depend on the machine's load: the instructions of a lock that the server keeps,
# beside those of a PostgreSQL lock; what a commit under another session's lock adds; those of the question
# whether the server leads; those of a look by zklock-run, and at zk_status; and the requests to ZooKeeper of each way
# to a lock.

use strict;
use warnings;

use FindBin;
use Test::More;

# What test/bench/NAME has counted.
sub counts
{
	my ($name, @arguments) = @_;
	my $output = qx('$FindBin::RealBin/../bench/$name' @arguments 2>&1);
	is($?, 0, $name) or diag $output;
	note $output;
	return $output =~ /^(\S.*?) +([\d.]+) (?:instructions|requests)$/mg;
}

my %instructions = counts('instructions', 'short');

sub costs_at_most
{
	my ($times, $one, $other) = @_;
	cmp_ok($instructions{$_} // 0, '>', 100, "$_ was counted") foreach $one, $other;
	cmp_ok($instructions{$one} // 0, '<=', $times * ($instructions{$other} // 0),
		"$one: at most $times times the instructions of $other");
	return;
}

costs_at_most(1.1, 'zk_xact_lock_acquire, prepared', 'pg_advisory_xact_lock, prepared');
costs_at_most(1.15, 'zk_is_leader', 'zk_lock_is_held');	# 1.12 with PostgreSQL 18 of unstable
costs_at_most(1.03, 'a write under zklock.commit_under', 'a write in a session with a lock');

# A query that is compiled with JIT costs a hundred times this, and each command of zklock-run looks twice a second.
costs_at_most(4, 'a look of zklock-run, prepared', 'pg_advisory_xact_lock, prepared');
costs_at_most(40, 'a look at zk_status', 'pg_advisory_xact_lock, prepared');

# The list and the watch of a ticket that is owned for a while are among the requests.  Where both
# servers act at the same time, a request more or less depends on which server is first; so there
# the bound is one more than was counted, and more where 24 clients meet at random.  A run reads the
# record before the lock, and writes it when it begins and when it has ended.  If a machine is so slow
# that the last run began 10 s ago, the first of the four also asks for ZooKeeper's time.  A try that
# fails ends its watch before it deletes its znode.
my %requests = counts('requests');
my %most = (
	'a lock that the server keeps' => 0,
	'a lock that no client has used' => 6,
	'a lock that this server has used' => 4,
	'a lock that another server has used' => 5,
	'a lock that another server keeps' => 10,
	'a run of a job' => $requests{'a lock that this server has used'} + 3 + 1 / 4,
	'a tick of a job that is used up' => 1,
	'a try for a lock that another server holds' => 5,
	'a lock that two servers take in turns' => 12,
	'a lock on one of 200 shared paths' => 4);
is(join(', ', sort keys %requests), join(', ', sort keys %most), 'what was counted');
cmp_ok($requests{$_} // 1e9, '<=', $most{$_}, "requests for $_") foreach sort keys %most;

done_testing();
