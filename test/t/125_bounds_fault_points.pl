
# What all roles share: one role that takes as much as it can get leaves enough to the others.  The
# test counts places and waits, not times.  Needs servers with fault points (make FAULTS=1).

use strict;
use warnings;

use Errno;
use IPC::Run;

use ZklockTest;


# (Few places for runs of jobs: twice the processes that there can be.)
my $zk = ZooKeeper->new;
my $node = ZklockNode->started('n', $zk,
	'zklock.session_timeout' => '60s',
	'zklock.connection_timeout' => '2min',
	'zklock.linger' => 0,
	'deadlock_timeout' => '100ms',
	'max_connections' => 100,
	'autovacuum_max_workers' => 1,
	'max_worker_processes' => 4,
	'max_wal_senders' => 0,
	'max_locks_per_transaction' => 256);
$node->safe_psql('postgres', 'CREATE ROLE abuser LOGIN; CREATE ROLE victim LOGIN; CREATE ROLE third LOGIN');
sub session_of { my ($role) = @_; return $node->backend(extra_params => [ '-U', $role ]); }
my $watcher = $node->backend;
my @victims = map { session_of('victim') } 1 .. 8;
my $victim = $victims[0];

sub waiting
{
	my ($role, $event) = @_;
	return "SELECT count(*) FROM pg_stat_activity WHERE usename = '$role' AND state = 'active' AND wait_event = '$event'";
}

# --- readers of the views ---------------------------------------------------------------------

my @paths = map { (ZklockNode::paths_in($_, 1))[0] } 0 .. 15;
my @views = ('FROM zk_locks', 'FROM zk_stat_locks', 'FROM zk_stat', 'FROM zk_blockers(' . $victim->pid . ')');
my @readers = map { session_of('abuser') } @views, @views, @views;

# (The first partition is number 0.  Without an entry in it, the worker does not need it.)
foreach my $view (@views)
{
	$node->wait_until('SELECT entries = 0 FROM zk_status');
	$node->arm('partition-browsed');
	$readers[0]->send("SELECT count(*) >= 0 $view");
	my $process = $node->at_point('partition-browsed');
	$readers[$_]->send("SELECT count(*) >= 0 $views[$_ % @views]") foreach 1 .. $#readers;
	$node->wait_until(waiting('abuser', 'zklock') =~ s/count\(\*\)/count(*) = $#readers/r);
	is($victim->query("SELECT count(*) FROM unnest('{" . join(',', @paths[1 .. 15]) . "}'::text[]) AS p WHERE zk_lock_acquire(p) AND zk_lock_release(p)"),
		15, "$view: while a reader has one partition, and others wait for their turn, the rest is free");
	$victim->send("SELECT zk_lock_acquire('$paths[0]')");
	$node->wait_until(waiting('victim', 'zklock') =~ s/count\(\*\)/count(*) = 1/r);
	kill 'CONT', $process;
	is($victim->answer, 't', "$view: and that partition is free after that");
	is(join('', map { $_->answer } @readers), 't' x @readers, "$view: all readers have read");
	$victim->query('SELECT zk_lock_release_all()');
}
$_->quit foreach @readers;

# --- requests to ZooKeeper ----------------------------------------------------------------------

# There are 16 places.  One role leaves as many places free as it has.
my @abusers = map { session_of('abuser') } 1 .. 10;
my @third = map { session_of('third') } 1 .. 4;
my $queue = 'SELECT count(*) FROM zk_waits()';
my $asked = $node->data_dir . '/zklock.fault.command-asked';

# Each session wants to read.  A session that gets a place stands still, and the others wait for
# one.
sub take_places
{
	my ($role, $wanted, @sessions) = @_;
	my $n = @sessions;
	foreach my $session (@sessions)
	{
		my $pid = $session->pid;
		symlink 'stop', $asked or $!{EEXIST} or die "symlink: $!";
		$session->send($queue);
		$zk->wait_until(sub { ZklockNode::is_still($pid) || $watcher->query("SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid") eq 't' },
			'it to get a place, or to wait for one');
		$wanted-- if ZklockNode::is_still($pid);
	}
	unlink $asked;
	is($wanted, 0, "$n sessions of role $role want to read at a time, and its share of them may");
	return;
}

sub go_on { kill 'CONT', map { $_->pid } @_; return join '', map { $_->answer } @_; }

take_places('abuser', 8, @abusers);
take_places('victim', 4, @victims);
take_places('third', 2, @third);
is(go_on(@abusers, @victims, @third), '0' x 22, 'all are answered in the end');

# The requests of a job go the same way.
take_places('abuser', 8, @abusers);
is($victim->query(q{SELECT zk_xact_run_once('/victim/job')}), 't', 'beside them, another role runs a job');
go_on(@abusers);
$_->quit foreach @third, @abusers[ 3 .. $#abusers ];

# --- runs of jobs ---------------------------------------------------------------------------------

sub run_jobs
{
	my ($session, $where, $n) = @_;
	return $session->run("SELECT count(*) FROM generate_series(1, $n) AS i WHERE zk_run_once('$where/' || i)");
}
# PostgreSQL 18 has more backends, and so more places, because autovacuum_worker_slots adds to them.
my $result = run_jobs($abusers[0], '/abuser/one', 60);
$result = run_jobs($abusers[1], '/abuser/two', 200);
is($result->{errcode}, '53400', 'one role does not get all places for runs of jobs');
my ($places) = $result->{err} =~ /ERROR:.*too many runs of jobs on this server.*DETAIL:.*There are (\d+) places for runs, and at most half of them for one role/s;
is($node->safe_psql('postgres', q{SELECT count(*) FROM zk_jobs WHERE state = 'started' AND path LIKE '/abuser/%'}), $places / 2, 'but half of them');
is(run_jobs($abusers[2], '/abuser/three', 1)->{errcode}, '53400', 'in whatever session');
is(run_jobs($victim, '/victim', 20)->{out}, 20, 'another role has its own');
$_->query('SELECT zk_lock_release_all()') foreach $victim, $abusers[1];
ok($zk->wait_until(sub { run_jobs($abusers[2], '/abuser/three', 1)->{out} eq '1' }, 'a place for a run'), 'a run that has ended makes room');
$_->query('SELECT zk_lock_release_all()') foreach @abusers[ 0, 2 ];

# --- waits that are published --------------------------------------------------------------------

# One role has more waits than a server publishes, all of them older, and one of them with more locks
# than all records have room for.  A deadlock of another role is found all the same.
my $south = ZklockNode->started('south', $zk, 'zklock.session_timeout' => '60s', 'deadlock_timeout' => '100ms');
my ($holder, $other) = ($south->backend, $south->backend);
$holder->query(q{SELECT count(zk_lock_acquire('/crowd/' || n)) FROM generate_series(0, 70) AS n});
$abusers[0]->query(q{SELECT zk_multilock_acquire(array_agg('/many/' || repeat('x', 240) || i)) FROM generate_series(1, 300) AS i});
$abusers[0]->send(q{SELECT zk_lock_acquire('/crowd/70')});
$node->wait_for_ticket('/crowd/70', 'queued');
my $script = PostgreSQL::Test::Utils::tempdir() . '/crowd.sql';
append_to_file($script, q{SELECT zk_lock_acquire('/own/' || :client_id); SELECT zk_lock_acquire('/crowd/' || :client_id);});
my $crowd_out = '';
my $crowd = IPC::Run::start([ 'pgbench', '-n', '-c', 70, '-j', '1', '-t', '1', '-f', $script, '-U', 'abuser', '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \$crowd_out, '2>', \my $crowd_err);
$other->wait_until(q{SELECT count(*) > 60 FROM zk_waits WHERE role = 'abuser'});
$_->query(q{SET lock_timeout = '1min'; BEGIN}) foreach $victim, $other;
$victim->query(q{SELECT zk_xact_lock_acquire('/victim/a')});
$other->query(q{SELECT zk_xact_lock_acquire('/victim/b')});
$victim->send(q{SELECT zk_xact_lock_acquire('/victim/b')});
$other->send(q{SELECT zk_xact_lock_acquire('/victim/a')});
is(join('', sort map { my $code = $_->result->{errcode}; $_->query('ROLLBACK'); $code } $victim, $other), '40P01',
	'beside many waits of one role, a deadlock of another role across servers is broken');
$holder->query('SELECT zk_lock_release_all()');
$crowd->finish;
like($crowd_out, qr{actually processed: 70/70}, 'and all get their locks');
is($abusers[0]->answer, 't', 'the one with many locks, too');
$_->query('SELECT zk_lock_release_all()') foreach $victim, $abusers[0];
$_->quit foreach $holder, $other;
$south->stop;

# --- tickets that linger ----------------------------------------------------------------------------

# Lingering tickets are not held, so zklock.max_locks_per_backend does not count them; but those of
# one role stop lingering when they take half of the room.  Those of another role go on.
$node->set('zklock.linger', '1h');
my $twice = q{SELECT count(*) FROM generate_series(1, %d) AS i, LATERAL (SELECT '/linger/' || i AS path OFFSET 0) AS p
	WHERE zk_lock_acquire(path) AND zk_lock_release(path) AND zk_lock_acquire(path) AND zk_lock_release(path)};
my $long = '/linger/' . 'x' x 230;
my $together = qq{SELECT zk_multilock_acquire(paths), zk_multilock_release(paths), zk_multilock_acquire(paths), zk_multilock_release(paths)
	FROM (SELECT array_agg('$long/%s/' || i) FROM generate_series(1, 900) AS i) AS a (paths)};
is($abusers[0]->query(sprintf $together, $_), 't|t|t|t', "900 long paths come back, $_") foreach 'a', 'b';
$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/linger/%' AND ticket <> 'lingering'});
my $bytes = $node->status('ephemeral_bytes');
ok($bytes > 250_000 && $bytes <= 450_000, "tickets that linger take half of a ZooKeeper session's bytes: $bytes");
$_->quit foreach @abusers[ 0 .. 2 ], @victims;
$watcher->quit;

# Tickets that were given up take room as well: when little is left, their deletes go before new tickets.
$node->configure('zklock.max_locks' => 400);
$node->restart;
$node->wait_until_connected;
my $fresh = PostgreSQL::Test::Utils::tempdir() . '/fresh.sql';
append_to_file($fresh, "\\set k random(1, 1000000000000000)\nSELECT zk_lock_acquire('/fresh/' || :k);\nSELECT zk_lock_release('/fresh/' || :k);\n");
command_ok([ 'pgbench', '-n', '-c', '64', '-j', '2', '-T', '3', '-f', $fresh, '-h', $node->host, '-p', $node->port, '-U', 'postgres', 'postgres' ],
	'64 sessions acquire locks on new paths, and none is refused');

$node->configure('zklock.max_locks' => 64);
$node->restart;
$node->wait_until_connected;
my $abuser = session_of('abuser');
$victim = session_of('victim');
is($abuser->query(sprintf $twice, 80), 80, '80 paths come back');
$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/linger/%' AND ticket <> 'lingering'});
my $n = $node->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE path LIKE '/linger/%'});
ok($n > 16 && $n <= 33, "of 64 places, $n are taken by tickets that linger");

# The worker ends these claims, and their tickets count for the same role.
$abuser->query('SET zklock.on_lost = notice');
is($abuser->query(q{SELECT count(*) FROM generate_series(1, 12) AS i, LATERAL (SELECT '/linger/limit/' || i AS path OFFSET 0) AS p
	WHERE zk_lock_acquire(path) AND zk_lock_release(path) AND zk_lock_acquire(path, NULL, '100 ms')}), 12, 'more come back, with a lease time');
$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/linger/%' AND claim = 'held'});
$abuser->query('SELECT zk_lock_release_all()');
$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/linger/%' AND ticket <> 'lingering'});
$n = $node->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE path LIKE '/linger/%'});
cmp_ok($n, '<=', 33, '... and the role has no more places than before');
my $comes_back = q{SELECT count(*) FROM generate_series(1, 20) AS i WHERE zk_lock_acquire('/victim/own') AND zk_lock_release('/victim/own')};
my $tickets = $node->status('tickets');
cmp_ok($node->status('entries'), '>=', 32, 'half is in use, or more');
is($victim->query($comes_back), 20, 'a lock of another role comes back');
is($node->status('tickets') - $tickets, 2, 'with the ticket that it had when it came back first');
is($node->safe_psql('postgres', q{SELECT ticket FROM zk_locks WHERE path = '/victim/own'}), 'lingering', 'and lingers');
is($victim->query(q{SELECT count(*) FROM generate_series(1, 30) AS i WHERE zk_lock_acquire('/victim/' || i)}), 30, 'there is room for other locks');
$_->quit foreach $abuser, $victim;

# --- leaderships, for which places are set aside -----------------------------------------------------

# The worker also has room for these when it goes through all tickets, as at an expiry.  (An assertion
# ends the server otherwise.)
$node->configure('zklock.linger' => 0, 'zklock.session_timeout' => '10s');
$node->restart;
$node->wait_until_connected;
$victim = session_of('victim');
is($victim->query(q{SELECT count(*) FROM generate_series(1, 64) AS i WHERE zk_lock_acquire('/full/' || i)}), 64, 'all places are taken');
is($victim->errcode(q{SELECT zk_lock_acquire('/full/65')}), '53400', 'there is none for another lock');
$node->configure('zklock.leader_of' => join ',', map { "/lead/$_" } 1 .. 20);
$node->reload;
$node->wait_until(q{SELECT bool_and(zk_is_leader('/lead/' || i)) FROM generate_series(1, 20) AS i});
my $at = -s $node->logfile;
$node->expire_session($zk);
$node->wait_until(q{SELECT bool_and(zk_is_leader('/lead/' || i)) FROM generate_series(1, 20) AS i});
unlike(slurp_file($node->logfile, $at), qr/terminated by signal/, 'the server leads again after an expiry with more tickets than places');
$victim->quit;

$node->stop;
done_testing();
