# What zk_stat_locks and zk_stat count: of locks between backends and between servers, and of
# a ZooKeeper that goes away; what they keep, and what they forget.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my @settings = ('zklock.session_timeout' => '12s', 'zklock.stat_locks' => 100, 'zklock.on_lost' => 'notice',
	'deadlock_timeout' => '10ms');
my ($a, $b) = map { ZklockNode->started($_, $zk, @settings) } 'a', 'b';
my ($one, $two) = map { $_->query('SET client_min_messages = error'); $_ } $a->backend, $a->backend;
my $other = $b->backend;

sub stat_of
{
	my ($node, $columns, $path) = @_;
	return $node->safe_psql('postgres', "SELECT $columns FROM zk_stat_locks WHERE path = '$path'");
}
sub zk_stat { my ($columns) = @_; return $a->safe_psql('postgres', "SELECT $columns FROM zk_stat"); }

# --- backends of one server -------------------------------------------------------------------

$one->query(acquire('/local'));
$two->send(acquire('/local'));
$a->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
is(stat_of($a, 'acquired, waited, hold_time', '/local'), '1|0|0', 'a wait counts when it has ended');
$one->query(release('/local'));
$two->result;
is(stat_of($a, 'acquired, acquired_locally, waited, timeouts, handed_over', '/local'), '2|1|1|0|0',
	'a backend waits for another one, and needs no ZooKeeper');
is($one->query(q{SELECT zk_lock_acquire('/local', '0'), zk_lock_acquire('/local', '30 ms')}), 'f|f', 'taken');
is(stat_of($a, 'acquired, waited, timeouts, wait_time >= 30', '/local'), '2|2|2|t', 'a try is no wait, but a timeout');
is($one->errcode(q{SET lock_timeout = 30; SELECT zk_lock_acquire('/local')}), '55P03', 'lock_timeout');
is(stat_of($a, 'waited, timeouts, wait_time >= 60', '/local'), '3|3|t', 'counts as a timeout');
$one->query('RESET lock_timeout');
is($one->query(q{SELECT zk_multilock_acquire('{/free, /local}', '0')}), 'f', 'a multilock fails');
is(stat_of($a, 'acquired, timeouts', '/free') . ' ' . stat_of($a, 'acquired, timeouts', '/local'), '1|0 2|4',
	'by the path that was taken');
$two->query(release('/local'));

$one->query(acquire('/circle/1'));
$two->query(acquire('/circle/2'));
$one->send(acquire('/circle/2'));
$a->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
$two->send(acquire('/circle/1'));
# Whichever of them looks first is the victim.  The other one waits until the victim lets go of what it has.
my ($victim, $winner) = ($one, $two);
until ($victim->is_done)
{
	($victim, $winner) = ($winner, $victim);
	select(undef, undef, undef, 0.01);
}
is($victim->result->{errcode}, '40P01', 'PostgreSQL finds a deadlock');
$victim->query('SELECT zk_lock_release_all()');
$winner->answer;
$winner->query('SELECT zk_lock_release_all()');
is($a->safe_psql('postgres', q{SELECT sum(deadlocks), sum(waited) FROM zk_stat_locks WHERE path LIKE '/circle/%'}), '1|2',
	'which is counted where the victim waited');

# --- semaphores ---------------------------------------------------------------------------------

is($one->query(q{SELECT zk_semaphore_acquire('/room', 1), zk_semaphore_acquire('/room', 1, '0')}), 't|f', 'a semaphore is full');
is(stat_of($a, 'acquired, acquired_locally, timeouts', '/room'), '1|0|1', 'it has one row');
$one->query(q{SELECT zk_semaphore_release('/room')});

# --- two servers ---------------------------------------------------------------------------------

$one->query(acquire('/both'));
$other->send(acquire('/both'));
$b->wait_for_ticket('/both', 'queued');
$a->wait_until_contended('/both');
$one->query(release('/both'));
$other->result;
is(stat_of($a, 'acquired, waited, handed_over, hold_time > 0', '/both'), '1|0|1|t', 'one server hands the lock over');
is(stat_of($b, 'acquired, acquired_locally, waited, handed_over, wait_time > 0', '/both'), '1|0|1|0|t', 'and the other one has waited');
$one->query(q{SET lock_timeout = '3s'});
$one->send(acquire('/both'));
$a->wait_for_ticket('/both', 'queued');
is($one->result->{errcode}, '55P03', 'lock_timeout, for another server');
is(stat_of($a, 'acquired, waited, timeouts', '/both'), '1|1|1', 'counts, too');
$one->query('RESET lock_timeout');
$one->send(q{SELECT zk_lock_acquire('/both', '3 s'), zk_lock_acquire('/both', '0')});
$a->wait_for_ticket('/both', 'queued');
is($one->answer, 'f|f', 'timeouts of its own');
is(stat_of($a, 'acquired, waited, timeouts', '/both'), '1|2|3', 'count, too');
$other->query(release('/both'));

# A lock that lingers goes to the server that wants it: that is handed over, too.
$a->set('zklock.linger', '1min');
$one->query(q{SELECT zk_lock_acquire('/linger'), zk_lock_release('/linger')}) foreach 1 .. 3;
$other->query(acquire('/linger'));
is(stat_of($a, 'handed_over', '/linger'), 1, 'a lock that lingered is handed over');
$a->set('zklock.linger', '1s');
$other->query(q{SELECT zk_lock_release_all()});

# A lost znode.
$one->query(acquire('/deleted'));
$zk->delete('/zklock/deleted/' . $zk->children('/zklock/deleted')->[0]);
$a->wait_until(q{SELECT lost = 1 AND hold_time > 0 FROM zk_stat_locks WHERE path = '/deleted'});
my $held = stat_of($a, 'hold_time', '/deleted');
$one->query('SELECT zk_lock_release_all()');
is(stat_of($a, 'acquired, lost, hold_time', '/deleted'), "1|1|$held", 'a lost claim was held until its loss');

# --- no more rows than the setting says --------------------------------------------------------

$one->query(q{SELECT zk_lock_acquire('/kept'), zk_lock_release('/kept')});
$two->query(acquire('/idle'));
$a->safe_psql('postgres', q{
	DO $$
	BEGIN
		FOR i IN 1..300 LOOP
			PERFORM zk_lock_acquire('/many/' || i), zk_lock_release('/many/' || i), zk_lock_acquire('/kept'), zk_lock_release('/kept');
		END LOOP;
	END $$});
my $rows = $a->safe_psql('postgres', 'SELECT count(*) FROM zk_stat_locks');
cmp_ok($rows, '<=', 100, 'at most zklock.stat_locks rows');
cmp_ok($rows, '>', 80, '... and not many fewer');
cmp_ok(zk_stat('paths_discarded'), '>=', 200, 'the others were discarded');
is($a->safe_psql('postgres', 'SELECT acquired - claims FROM zk_stat, zk_status'), 0, 'but no grant is missing from the sum');
is(stat_of($a, 'acquired', '/kept'), 301, 'the path that is used most stays');
is(stat_of($a, 'acquired', '/idle'), '', 'that of a lock that is held may go');
is($two->query(q{SELECT zk_lock_is_held('/idle'), zk_lock_release('/idle')}), 't|t', 'the lock stays');
is(stat_of($a, 'acquired, hold_time > 0', '/idle'), '0|t', 'and counts anew when it is used');

# --- requests and answers ------------------------------------------------------------------------

my @kinds = qw(creates lists reads writes deletes checks unwatches);
my $sum = join(' + ', @kinds);
my $before_kinds = zk_stat($sum);
$one->query(q{SELECT count(*) FROM generate_series(1, 20) AS i WHERE zk_lock_acquire('/kinds/' || i)});
$one->query(q{SELECT zk_lock_release_all()});
$one->query(q{SELECT count(*) FROM zk_lock_queue('/kinds/1')});
$a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/kinds/%'});
cmp_ok(zk_stat($sum) - $before_kinds, '>=', 60, 'requests are counted');
# The views are not read in one moment, and a backend or a timer may send a request between the two.
$a->wait_until("SELECT $sum = requests FROM zk_stat, zk_status");
pass('every request is of one kind');
$a->wait_until('SELECT answer_buckets[14] = answers AND answers > heartbeats AND heartbeats > 1 FROM zk_stat');
cmp_ok(zk_stat('answer_time / answers'), '<', 1000, 'ZooKeeper answers within a second');

# --- ZooKeeper stalls, goes and comes, and a session expires -----------------------------------

$one->query(acquire('/doubt'));
is(zk_stat('reconnects, expirations, doubt_time'), '0|0|0', 'nothing has happened yet');
$zk->pause;
$a->wait_until(q{SELECT state = 'in doubt' FROM zk_status});
$a->wait_until('SELECT doubt_time > 100 FROM zk_stat');
pass('time in doubt counts while it lasts');
$zk->resume;
$a->wait_until_connected;
my $doubt = zk_stat('doubt_time');
cmp_ok($doubt, '>', 100, 'and when it is over');
is(zk_stat("doubt_time = $doubt"), 't', 'then it stands still');
my $reconnects = zk_stat('reconnects');
$zk->stop;
$a->wait_until_away;
$zk->start;
$a->wait_until_connected;
cmp_ok(zk_stat('reconnects'), '>', $reconnects, 'a reconnect');
$doubt = zk_stat('doubt_time');
# If the machine is slow, the session may have expired already while ZooKeeper stood still.
my $expirations = zk_stat('expirations');
$a->expire_session($zk);
is(zk_stat('expirations'), $expirations + 1, 'an expiration');
cmp_ok(zk_stat('doubt_time'), '>', $doubt, 'a session that expires was in doubt before');
$a->wait_until(q{SELECT lost = 1 FROM zk_stat_locks WHERE path = '/doubt'});
pass('its lock is lost');
$one->query('SELECT zk_lock_release_all()');

# --- what outlives what ----------------------------------------------------------------------------

my $worker = $a->worker_pid;
my $before = zk_stat('expirations, paths_discarded, stats_reset');
my $kept = stat_of($a, '*', '/kept');
kill 'TERM', $worker;
$a->wait_until("SELECT worker_pid <> $worker AND safe FROM zk_status");
is(zk_stat('expirations, paths_discarded, stats_reset'), $before, 'statistics outlive the worker');
is(stat_of($a, '*', '/kept'), $kept, 'of locks, too');
$_->quit foreach $one, $two;
$a->restart;
$a->wait_until_connected;
my ($reset) = $before =~ /([^|]*)$/;
is(zk_stat("expirations, reconnects, doubt_time, paths_discarded, stats_reset > '$reset'"), '0|0|0|0|t',
	'a server that starts begins with zero');
is($a->safe_psql('postgres', 'SELECT count(*) FROM zk_stat_locks'), 0, 'without any path');

$other->quit;
$_->stop foreach $a, $b;
done_testing();
