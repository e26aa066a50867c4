
# What a hint advises works.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '20s', 'zklock.linger' => 0,
	'zklock.on_lost' => 'notice');
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $s = $node->backend;

sub hint_of { my ($result) = @_; return $result->{err} =~ /^(?:\S+ )?HINT:  (.*)$/m ? $1 : ''; }

# Another client deletes the znode of the lock, and the server knows it.
sub lose
{
	my ($path) = @_;
	my ($directory) = grep { $zk->exists("/zklock$_") } "$path/leases", $path;
	$zk->delete("/zklock$directory/" . $zk->children("/zklock$directory")->[0]);
	$node->wait_until("SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '$path'");
	return;
}

# --- a lost lock ---

# How it is acquired, and the function that releases it: none for a transaction-level lock.
my @ways = (
	[ q{zk_lock_acquire('%s')}, 'zk_lock_release' ],
	[ q{zk_multilock_acquire('{%s}')}, 'zk_lock_release' ],
	[ q{zk_read_lock_acquire('%s')}, 'zk_read_lock_release' ],
	[ q{zk_write_lock_acquire('%s')}, 'zk_write_lock_release' ],
	[ q{zk_semaphore_acquire('%s', 2)}, 'zk_semaphore_release' ],
	[ q{zk_xact_lock_acquire('%s')} ],
	[ q{zk_xact_multilock_acquire('{%s}')} ],
	[ q{zk_xact_read_lock_acquire('%s')} ],
	[ q{zk_xact_write_lock_acquire('%s')} ],
	[ q{zk_xact_semaphore_acquire('%s', 2)} ]);

my $retry = 'Retry the transaction.';
sub release_first { return qq{Release the lock with "$_[0]" and acquire it again, then retry the transaction.}; }

foreach my $way (@ways)
{
	my ($call, $release) = @$way;
	my ($what) = $call =~ /^(\w+)/;
	my $path = "/lost/$what";
	my $acquire = 'SELECT ' . sprintf $call, $path;
	my $hint = $release ? release_first($release) : $retry;

	$s->query('BEGIN');
	is($s->query($acquire), 't', "$what: acquired");
	$s->query('COMMIT; BEGIN') if $release;
	$s->query("INSERT INTO t VALUES ('$what')");
	lose($path);
	my $result = $s->run('COMMIT');
	is($result->{errcode}, 'ZK001', "$what: lost, the commit fails");
	is(hint_of($result), $hint, "$what: a hint");
	if ($release)
	{
		is($s->errcode("INSERT INTO t VALUES ('$what')"), 'ZK001', "$what: retrying alone is of no use");
		is(hint_of($s->run(token($path))), $hint, "$what: using the lock gives the same hint");
		is(hint_of($s->run($acquire)), $hint, "$what: so does acquiring it");
		is($s->run("SELECT $release('$path')")->{out}, 'f', "$what: released as advised");
	}
	is($s->errcode("BEGIN; $acquire; INSERT INTO t VALUES ('$what'); COMMIT"), '', "$what: retried as advised");
	$s->query('SELECT zk_lock_release_all()');
}

# A writer that reads must release both, one after the other.
$s->query(q{SELECT zk_write_lock_acquire('/lost/both'), zk_read_lock_acquire('/lost/both')});
lose('/lost/both');
foreach my $release ('zk_write_lock_release', 'zk_read_lock_release')
{
	is(hint_of($s->run(q{INSERT INTO t VALUES ('both')})), release_first($release), "writing and reading: $release");
	$s->run("SELECT $release('/lost/both')");
}
is($s->errcode(q{INSERT INTO t VALUES ('both')}), '', 'writing and reading: then it works');

# A lease time that is over.
$s->query(q{SELECT zk_lock_acquire('/over', lease_time => '100 ms')});
$node->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/over'});
my $result = $s->run(q{INSERT INTO t VALUES ('over')});
is($result->{errcode}, 'ZK002', 'lease time: over');
is(hint_of($result), release_first('zk_lock_release'), 'lease time: a hint');
$s->run(release('/over'));
is($s->errcode(q{SELECT zk_lock_acquire('/over'); INSERT INTO t VALUES ('over')}), '', 'lease time: it works');
$s->query('SELECT zk_lock_release_all()');

# A statement that is cancelled.
$s->query(q{SET zklock.on_lost = cancel; SELECT zk_lock_acquire('/cancelled')});
$s->send('SELECT pg_sleep(170)');
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'});
lose('/cancelled');
is(hint_of($s->result), release_first('zk_lock_release'), 'cancelled: a hint');
$s->run(release('/cancelled'));
is($s->errcode(q{INSERT INTO t VALUES ('cancelled')}), '', 'cancelled: it works');

# --- the wrong function ---

foreach my $has (grep { $_->[1] } @ways)
{
	foreach my $wants (grep { $_->[1] ne $has->[1] } @ways[ 0, 2 .. 4 ])
	{
		my $what = "$has->[1], not $wants->[1]";
		$s->query('SELECT ' . sprintf $has->[0], '/wrong');
		$result = $s->run("SELECT $wants->[1]('/wrong')");
		is($result->{out}, 'f', "$what: not released");
		is(hint_of($result), qq{Use "$has->[1]" to release it.}, "$what: a hint");
		is($s->query("SELECT $has->[1]('/wrong')"), 't', "$what: released");
	}
}
unlike($s->run(release('/wrong'))->{err}, qr/HINT/, 'nothing is held: no hint');
$s->query(q{BEGIN; SELECT zk_xact_semaphore_acquire('/wrong', 2)});
$result = $s->run(release('/wrong'));
is(hint_of($result), '', 'transaction-level: no function releases it');
like($result->{err}, qr/DETAIL:  This session holds it until the end of the transaction\./, 'transaction-level: and a detail says so');
$s->query('COMMIT');

# --- a reader that wants to write ---

my $write = q{SELECT zk_write_lock_acquire('/upgrade')};
$s->query(q{SELECT zk_read_lock_acquire('/upgrade')});
is(hint_of($s->run($write)), 'Release the read lock first, or acquire the write lock instead of it.', 'upgrade: a hint');
is($s->query("SELECT zk_read_lock_release('/upgrade'); $write"), "t\nt", 'upgrade: released first');
$s->query('SELECT zk_lock_release_all()');
$s->query(q{BEGIN; SELECT zk_xact_read_lock_acquire('/upgrade')});
is(hint_of($s->run($write)), 'Acquire the write lock instead of the read lock.', 'upgrade in a transaction: a hint');
is($s->query("ROLLBACK; BEGIN; $write"), 't', 'upgrade in a transaction: as the hint says');
$s->query('COMMIT; SELECT zk_lock_release_all()');

# --- one path, two kinds; one semaphore, two limits ---

my $other = $node->backend;
$s->query(q{SELECT zk_semaphore_acquire('/sem', 3)});
is(hint_of($other->run(q{SELECT zk_semaphore_acquire('/sem', 4)})),
	'All sessions and clients that use a semaphore must pass the same number of leases.', 'another limit: a hint');
is($other->query(q{SELECT zk_semaphore_acquire('/sem', 3)}), 't', 'another limit: the same works');
$result = $other->run(acquire('/sem'));
is(hint_of($result), 'Use another path.', 'another kind: a hint');
is($other->query(acquire('/sem2')), 't', 'another kind: it works');

# --- a lock that is released at the end of its statement ---

# In the extended protocol; sql/outside_block.sql has the rest.  A pipeline is one transaction.
my $lock = q{SELECT zk_xact_lock_acquire('/alone');};
my $insert = q{INSERT INTO t VALUES ('in a pipeline');};
foreach ([ 'alone', qr/WARNING:  "zk_xact_lock_acquire" should be called in a transaction block/, $lock ],
	[ 'first in a pipeline', qr/^(?!.*WARNING)/s, '\startpipeline', $lock, $insert, '\endpipeline' ],
	[ 'last in a pipeline', qr/^(?!.*WARNING)/s, '\startpipeline', $insert, $lock, '\endpipeline' ],
	[ 'in a block', qr/^(?!.*WARNING)/s, 'BEGIN;', $lock, 'COMMIT;' ])
{
	my ($what, $expected, @lines) = @$_;
	my $file = "${PostgreSQL::Test::Utils::tmp_check}/script.sql";
	unlink $file;
	append_to_file($file, join("\n", @lines) . "\n");
	my ($out, $err) = run_command([ 'pgbench', '-n', '-t', 1, '-M', 'extended', '-f', $file,
			'-h', $node->host, '-p', $node->port, 'postgres' ]);
	like($out, qr/transactions actually processed: 1\/1/, "$what: done");
	like($err, $expected, "$what: the warning, or none");
}

$_->quit foreach $s, $other;
$node->stop;
done_testing();
