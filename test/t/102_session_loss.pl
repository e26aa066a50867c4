
# The ZooKeeper session expires while locks are held and waited for.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my @settings = (
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '60s',
	'zklock.on_lost' => 'notice',		# idle backends shall stay, and meet the guard
	'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, @settings);
my $node_b = ZklockNode->started('b', $zk, @settings);
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');

my ($a1, $a2, $a3, $b1, $b2) =
  map { $_->backend } $node_a, $node_a, $node_a, $node_b, $node_b;

sub insert { my ($value) = @_; return "INSERT INTO t VALUES ('$value')"; }
sub rows { return $node_a->safe_psql('postgres', 'SELECT v FROM t ORDER BY v'); }

sub path_of { my ($path) = @_; return "/zklock$path"; }

sub expire
{
	my ($node) = @_;
	$node->expire_session($zk, by_hand => 1);
	return;
}

# A commit, or another statement, that complains of a lost lock.
sub is_lost
{
	my ($result, $path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{errcode}, 'ZK001', $what);
	like($result->{err}, qr/lock "\Q$path\E" was lost/, "$what: names the lock");
	like($result->{err}, qr/session that held it has expired/, "$what: and the reason");
	return;
}

sub only_warns
{
	my ($result, $path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{errcode}, '', "$what: no error");
	like($result->{err}, qr/WARNING:  ZK001: lock "\Q$path\E" was lost/, "$what: a warning");
	return;
}

# --- session-level, two locks ---

$a1->query(acquire('/one'));
$a1->query(acquire('/one'));
$a1->query(acquire('/two'));
my $token = $a1->query(token('/one'));
my $owner = $zk->exists('/zklock/one/' . $zk->children('/zklock/one')->[0])->{ephemeralOwner};
is(sprintf('0x%x', $owner), $node_a->status('session_id'), 'the znode is of the session');

expire($node_a);
is_deeply($zk->children('/zklock/one'), [], 'the znode is gone');
is($a1->query(held('/one')), 'f', 'a lost lock is not held');
is($a1->query(held('/two')), 'f', 'nor is the other');
is_lost($a1->run(acquire('/one')), '/one', 'acquire again');
is_lost($a1->run(try('/one')), '/one', 'try again');
is_lost($a1->run(token('/one')), '/one', 'token');
is($node_a->safe_psql('postgres',
		q{SELECT string_agg(path || ' ' || claim || ' ' || granted, ', ' ORDER BY path) FROM zk_locks}),
	'/one lost false, /two lost false', 'zk_locks shows them as lost');
is($node_a->status('expirations'), '1', 'zk_status counts the expiration');
is($node_a->status('last_error'), 'the ZooKeeper session has expired', '... and says so');
is($node_a->status('tickets_lost'), '2', 'and the tickets');

only_warns($a1->run('SELECT 1'), '/one', 'a transaction that only reads');
is($a1->errcode(insert('lost')), 'ZK001', 'a transaction that writes');
is($a2->query(try('/one')), 't', 'another backend of the server can have the lock');
cmp_ok($a2->query(token('/one')), '>', $token, 'with a greater token');
is($a2->query(insert('of a2')), '', 'and write');
my $znode = $zk->children('/zklock/one');

my $result = $a1->run(release('/one'));
is($result->{out}, 'f', 'release of a lost lock: false');
only_warns($result, '/one', 'release of a lost lock');
is($a1->run(release('/one'))->{out}, 'f', 'as often as it was acquired');
is_deeply($zk->children('/zklock/one'), $znode, 'that does not touch the znode of the new holder');
is($a1->errcode(insert('lost')), 'ZK001', 'the other lost lock still keeps it from writing');
is($a1->run('SELECT zk_lock_release_all()')->{out}, '1', 'release all');
is($a1->run(insert('of a1'))->{err}, '', 'then it can write again');
is($a1->run('SELECT 1')->{err}, '', 'and there are no more warnings');
is(rows(), "of a1\nof a2", 'what was refused is not there');

$a1->send(acquire('/one'));
$node_a->wait_for_waiter('/one', 1);
$a2->query(release('/one'));
is($a1->result->{out}, 't', 'the backend that lost the lock can have it again');
is($a1->query(held('/one')), 't', 'and holds it');
$a1->query(release('/one'));
$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks});

# --- transaction scope ---

$node_a->safe_psql('postgres', 'TRUNCATE t');
$a1->query(q{BEGIN; SELECT zk_xact_lock_acquire('/x')});
$a1->query(insert('xact'));
$a2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/y'); SELECT count(*) FROM t});
$a3->query('BEGIN');
$a3->query(acquire('/z'));
$a3->query(insert('released'));
expire($node_a);

is($a1->query(held('/x')), 'f', 'transaction scope: not held');
is_lost($a1->run('COMMIT'), '/x', 'transaction scope: COMMIT');
is_lost($a2->run('COMMIT'), '/y', 'transaction scope: COMMIT of a transaction that only read under the lock');
is($a1->run('SELECT 1')->{err}, '', 'transaction scope: then it is over');

$result = $a3->run(release('/z'));
is($result->{out}, 'f', 'released inside of the transaction: false');
is($a3->query(acquire('/z')), 't', 'released inside of the transaction: can be acquired again');
is($a3->query(held('/z')), 't', 'released inside of the transaction: and is held');
is_lost($a3->run('COMMIT'), '/z', 'released inside of the transaction: COMMIT');
is($a3->query(held('/z')), 't', 'released inside of the transaction: the new claim stays');
is($a3->run(insert('after'))->{err}, '', 'released inside of the transaction: the next one writes');
$a3->query(release('/z'));
is(rows(), 'after', 'transaction scope: nothing of what was refused is there');

# --- savepoints ---

$node_a->safe_psql('postgres', 'TRUNCATE t');
$a1->query('BEGIN');
$a1->query(insert('before'));
$a1->query(q{SAVEPOINT s; SELECT zk_xact_lock_acquire('/x')});
$a1->query(insert('inside'));
$a2->query('BEGIN');
$a2->query(q{SAVEPOINT s; SELECT zk_xact_lock_acquire('/y')});
$a2->query(insert('released savepoint'));
$a2->query('RELEASE SAVEPOINT s');
$a3->query(q{BEGIN; SELECT zk_xact_lock_acquire('/z'); SAVEPOINT s; SELECT zk_xact_lock_acquire('/z')});
$a3->query(insert('outer lock'));
expire($node_a);

$a1->query('ROLLBACK TO s');
is($a1->run('COMMIT')->{errcode}, '', 'the savepoint of the lost lock was rolled back');
is_lost($a2->run('COMMIT'), '/y', 'the savepoint of the lost lock was released');
$a3->query('ROLLBACK TO s');
$a3->query(insert('outer lock'));
is_lost($a3->run('COMMIT'), '/z', 'the lost lock is of the outer transaction, too');
is(rows(), 'before', 'only what was written without a lost lock is there');
$node_a->wait_until('SELECT count(*) = 0 FROM zk_locks');
pass('no claim is left');

# A session-scope claim that is lost, and a savepoint rolled back.
$node_a->safe_psql('postgres', 'TRUNCATE t');
$a1->query('BEGIN; SAVEPOINT s');
$a1->query(acquire('/x'));
expire($node_a);
$a1->query('ROLLBACK TO s');
$a1->query(insert('session-level'));
is_lost($a1->run('COMMIT'), '/x', 'a session-level lock is not undone by a savepoint');
is(rows(), '', 'a session-level lock is not undone by a savepoint: nothing is there');
is($a1->run('SELECT zk_lock_release_all()')->{out}, '1', 'a session-level lock survived the rollback');

# --- the other server gets the lock ---

$a1->query(acquire('/turn'));
$token = $a1->query(token('/turn'));
$b1->send(acquire('/turn'));
$zk->wait_for_children('/zklock/turn', 2);
expire($node_a);
is($b1->result->{out}, 't', 'the other server has the lock');
cmp_ok($b1->query(token('/turn')), '>', $token, 'with a greater token');
is($a1->query(held('/turn')), 'f', 'the backend that lost it knows');
is($a1->run(release('/turn'))->{out}, 'f', 'and releases nothing');
is($b1->query(held('/turn')), 't', 'of the other server');
is(scalar(@{ $zk->children('/zklock/turn') }), 1, 'one znode');
is($a1->run(try('/turn'))->{out}, 'f', 'the backend that lost it finds it held');

# --- the server of the waiters ---

$a1->send(acquire('/turn'));
$node_a->wait_for_waiter('/turn', 1);
$a2->send(acquire('/turn'));
$node_a->wait_for_waiter('/turn', 2);
$zk->wait_for_children('/zklock/turn', 2);
$znode = $zk->children('/zklock/turn');
expire($node_a);
my $now = $zk->wait_for_children('/zklock/turn', 2);
isnt("@$now", "@$znode", 'the waiter is queued anew');
ok(!$a1->is_done && !$a2->is_done, 'and goes on waiting');
$b1->query(release('/turn'));
is($a1->result->{out}, 't', 'and gets the lock');
$a1->query(release('/turn'));
is($a2->result->{out}, 't', 'and the next one, too');
$a2->query(release('/turn'));

# Both servers at once.
$a1->query(acquire('/turn'));
$b1->send(acquire('/turn'));
$zk->wait_for_children('/zklock/turn', 2);
expire($node_b);
expire($node_a);
is($b1->result->{out}, 't', 'both expired: the waiter gets the lock');
is($a1->query(held('/turn')), 'f', 'both expired: the holder lost it');
$b1->query(release('/turn'));
$a1->run(release('/turn'));

# --- newcomers, and waiters behind the lost claim of their own server ---

$a1->query(acquire('/generation'));
$a2->send(acquire('/generation'));
$node_a->wait_for_waiter('/generation', 1);
expire($node_a);
is($a2->result->{out}, 't', 'the waiter has the lock, though the old holder has done nothing');
is($a2->query(held('/generation')), 't', 'and holds it');
is($a3->query(try('/generation')), 'f', 'against newcomers');
$a1->run(release('/generation'));
is($a1->run(try('/generation'))->{out}, 'f', 'and against the backend that lost it');
is($a2->query(held('/generation')), 't', 'the backend that lost it takes nothing away');
$a2->query(release('/generation'));
is($a3->query(acquire('/generation', '1min')), 't', 'a newcomer has it then');
$a3->query(release('/generation'));

# --- another client deletes the znode ---

sub in_order
{
	my ($path) = @_;
	return sort { substr($a, -10) cmp substr($b, -10) } @{ $zk->children("/zklock$path") };
}

$node_a->safe_psql('postgres', 'TRUNCATE t');
$a1->query(acquire('/foreign'));
$a2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/foreign2')});
$a2->query(insert('foreign'));
$zk->delete("/zklock/foreign/$_") foreach in_order('/foreign');
$zk->delete("/zklock/foreign2/$_") foreach in_order('/foreign2');
$a1->wait_until(q{SELECT NOT zk_lock_is_held('/foreign')});
$a2->wait_until(q{SELECT NOT zk_lock_is_held('/foreign2')});
$result = $a1->run(token('/foreign'));
is($result->{errcode}, 'ZK001', 'deleted: token');
like($result->{err}, qr/Another client has deleted its znode/, 'deleted: the reason');
is($a2->errcode('COMMIT'), 'ZK001', 'deleted: COMMIT');
is(rows(), '', 'deleted: nothing is there');
is($b1->query(acquire('/foreign')), 't', 'deleted: the other server can have the lock');
is($a1->run(release('/foreign'))->{out}, 'f', 'deleted: release');
$b1->query(release('/foreign'));

# The znode of a waiter: the server notices when the waiter's turn would have come.
$a1->query(acquire('/foreign'));
$b1->send(acquire('/foreign'));
$zk->wait_for_children('/zklock/foreign', 2);
my $lost = $node_b->status('tickets_lost');
$zk->delete('/zklock/foreign/' . (in_order('/foreign'))[1]);
$a1->query(release('/foreign'));
is($b1->result->{out}, 't', 'deleted while waiting: gets the lock nevertheless');
is(scalar @{ $zk->children('/zklock/foreign') }, 1, 'deleted while waiting: by a new znode');
is($b1->query(held('/foreign')), 't', 'deleted while waiting: and holds it');
is($node_b->status('tickets_lost'), $lost, 'deleted while waiting: nothing was lost');
$b1->query(release('/foreign'));

# Another client queues behind the ticket.
$a1->query(acquire('/foreign'));
$b1->send(acquire('/foreign'));
$node_a->wait_until_contended('/foreign');
$zk->delete('/zklock/foreign/' . (in_order('/foreign'))[0]);
is($b1->result->{out}, 't', 'deleted while contended: the next one has the lock');
$a1->wait_until(q{SELECT NOT zk_lock_is_held('/foreign')});
is($a1->errcode(insert('contended')), 'ZK001', 'deleted while contended: the owner has lost it');
$a1->run(release('/foreign'));
is($b1->query(held('/foreign')), 't', 'deleted while contended: its release does not touch the new holder');
$b1->query(release('/foreign'));

# --- the worker stands still, and ZooKeeper gives the session up ---

$node_b->set_session_timeout($zk, '8s');
is($node_b->status('session_timeout'), '00:00:08', 'a shorter session');
$node_b->safe_psql('postgres', 'CREATE TABLE t (v text)');
$b1->query(acquire('/still'));
$b2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/still2')});
$b2->query(insert('still'));
$znode = path_of('/still') . '/' . $zk->children('/zklock/still')->[0];

my $worker = $node_b->worker_pid;
kill 'STOP', $worker;
my ($gone, $wrong, $doubts) = (0, 0, 0);
$zk->wait_until(
	sub {
		$gone = !$zk->exists($znode);
		my $held = $b1->query(held('/still'));
		$wrong++ if $gone && $held eq 't';
		$doubts++ if !$gone && $held eq 'f';
		return $gone;
	},
	'the session to expire');
is($wrong, 0, 'no backend believes in a lock that is gone');
cmp_ok($doubts, '>', 0, 'it is in doubt before');
$result = $b1->run(token('/still'));
is($result->{errcode}, 'ZK001', 'in doubt: no token');
like($result->{err}, qr/is in doubt/, 'in doubt: says so');
is($b2->errcode('COMMIT'), 'ZK001', 'in doubt: no commit');
is($a1->query(acquire('/still')), 't', 'the other server has the lock');
$token = $a1->query(token('/still'));
kill 'CONT', $worker;
$node_b->wait_until(q{SELECT claim = 'lost' FROM zk_locks WHERE path = '/still'});
is($b1->errcode(token('/still')), 'ZK001', 'then it is lost');
is($b1->run(release('/still'))->{out}, 'f', 'then it is lost: release');
is($node_b->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', 'then it is lost: nothing is there');
$b1->send(acquire('/still'));
$zk->wait_for_children('/zklock/still', 2);
$a1->query(release('/still'));
is($b1->result->{out}, 't', 'and can be acquired again');
cmp_ok($b1->query(token('/still')), '>', $token, 'with a greater token');
$b1->query(release('/still'));

$_->quit foreach $a1, $a2, $a3, $b1, $b2;
foreach my $node ($node_a, $node_b)
{
	$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks});
	$node->stop;
	is(() = slurp_file($node->logfile) =~ /(?:PANIC|TRAP|terminated by signal)/g, 0, $node->name . ': a quiet log');
}
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

# --- servers of another ensemble do not know the session ---

# It looks like an expiry.  The log says that the session may live on elsewhere.
my $other = ZooKeeper->new;
my $node_c = ZklockNode->started('c', $zk, @settings);
my $c1 = $node_c->backend;
$c1->query(acquire('/left'));
my $log_at = -s $node_c->logfile;
$node_c->configure('zklock.hosts' => $other->hosts);
$node_c->reload;
$node_c->wait_until(q{SELECT expirations = 1 AND connected_since IS NOT NULL FROM zk_status});
is($c1->query(held('/left')), 'f', 'another ensemble: the lock is lost');
is(@{ $zk->children('/zklock/left') }, 1, 'though its znode is left');
my $log = slurp_file($node_c->logfile, $log_at);
like($log, qr/DETAIL:  ZooKeeper had confirmed it for \d+ ms more\./, 'the log says that it was too early');
like($log, qr/HINT:  If "zklock\.hosts" named another ensemble before, .* within 30000 ms\./, 'and where it may live on');

$node_c->stop('immediate');
$log_at = -s $node_c->logfile;
$node_c->configure('zklock.hosts' => $zk->hosts);
$node_c->start;
$node_c->wait_until_connected;
like(slurp_file($node_c->logfile, $log_at), qr/an earlier run of this server left behind has expired.*HINT:  If "zklock\.hosts" named another/s,
	'another ensemble after a crash: the log says so, too');
$node_c->stop;

done_testing();
