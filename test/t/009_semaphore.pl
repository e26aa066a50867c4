
# The semaphore on two servers: never more than n leases, all or nothing, in turn; and what becomes
# of leases and their waiters when something breaks.

use strict;
use warnings;

use History;
use ZklockTest qw(!acquire !release);

my $zk = ZooKeeper->new;
my @settings = (
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min',
	'zklock.tenure' => 0,
	'zklock.linger' => 0,
	'restart_after_crash' => 'on');
my $node_a = ZklockNode->started('a', $zk, @settings);
my $node_b = ZklockNode->started('b', $zk, @settings);
my ($a1, $a2, $a3, $b1, $b2) =
  map { $_->backend } $node_a, $node_a, $node_a, $node_b, $node_b;

sub acquire
{
	my ($path, $n, $timeout, $quantity) = @_;
	return "SELECT zk_semaphore_acquire('$path', $n, "
	  . (defined $timeout ? "'$timeout'" : 'NULL') . ', ' . ($quantity // 1) . ')';
}
sub release { my ($path, $quantity) = @_; return "SELECT zk_semaphore_release('$path', " . ($quantity // 1) . ')'; }

sub leases { my ($path) = @_; return "/zklock$path/leases"; }
sub inner { my ($path) = @_; return "/zklock$path/locks"; }
sub nleases { my ($path) = @_; return scalar @{ $zk->children(leases($path)) }; }

# Begin to acquire, and wait until the backend has the inner mutex and its leases wait in ZooKeeper.
sub wait_with_leases
{
	my ($node, $backend, $path, $n, $quantity, $expected) = @_;
	$backend->send(acquire($path, $n, undef, $quantity));
	$node->wait_until("SELECT count(*) = $expected FROM zk_locks"
		  . " WHERE path = '$path' AND claim IS NULL AND ticket = 'queued'");
	return;
}

# Begin to acquire, and wait until the backend queues for the inner mutex behind others.
sub wait_for_turn
{
	my ($node, $backend, $path, $n, $quantity, $waiters) = @_;
	$backend->send(acquire($path, $n, undef, $quantity));
	$node->wait_for_waiter("$path/locks", $waiters);
	return;
}

# Nothing is left of this path, in both servers and in ZooKeeper.
sub is_clean
{
	my ($path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$zk->wait_for_children(leases($path), 0);
	$zk->wait_for_children(inner($path), 0);
	$_->wait_until("SELECT NOT EXISTS (SELECT FROM zk_locks WHERE path LIKE '$path%')") foreach $node_a, $node_b;
	is_deeply([ map { $_->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}) } $node_a, $node_b ],
		[ 0, 0 ], "$what: nothing is left");
	return;
}

# --- as many leases as there are, whichever server has them ---

is($a1->query(acquire('/count', 3, undef, 2)), 't', 'two leases for a');
is($b1->query(acquire('/count', 3, '0')), 't', 'one for b');
is($b1->query(acquire('/count', 3, '0')), 'f', 'no more for b');
is($b2->query(acquire('/count', 3, '50ms')), 'f', 'nor for another backend, with a timeout');
is($a2->query(acquire('/count', 3, '0')), 'f', 'nor for a');
is($zk->wait_for_children(leases('/count'), 3) && nleases('/count'), 3, 'a znode for each lease');
my %of_session;
$of_session{ sprintf '0x%x', $zk->exists(leases('/count') . "/$_")->{ephemeralOwner} }++
  foreach @{ $zk->children(leases('/count')) };
is_deeply(\%of_session, { $node_a->status('session_id') => 2, $node_b->status('session_id') => 1 },
	'of the session that has the lease');
is($node_a->safe_psql('postgres', q{SELECT count(*), count(DISTINCT znode), string_agg(DISTINCT concat_ws(' ', kind, mode, claim, ticket, session_count, xact_count), ', ')
		FROM zk_locks WHERE path = '/count'}), '2|2|semaphore lease held owned 2 0', 'zk_locks has a row for each lease');
$zk->wait_for_children(inner('/count'), 0);
pass('no backend waits, and none has the inner mutex');

$a1->query(release('/count'));
$b2->wait_until(acquire('/count', 3, '0'));
is(nleases('/count'), 3, 'one was released, another one taken');
is($a1->query(acquire('/count', 3, '0')), 'f', 'and then there is none');
$b1->query('SELECT zk_lock_release_all()');
is($a1->query(acquire('/count', 3, undef, 1)), 't', 'released at one server, taken at the other');
is($_->query('SELECT zk_lock_release_all()') > 0, 1, 'released') foreach $a1, $b2;
is_clean('/count', 'as many as there are');

# --- another number of leases, as soon as none is in use ---

# Two servers alternate.  Leases that are being released, or linger, are not in use.
foreach my $linger (0, '1h')
{
	$_->set('zklock.linger', $linger) foreach $node_a, $node_b;
	my @refused;
	foreach my $round (1 .. 10)
	{
		foreach my $turn ([ $a1, 2, '1min' ], [ $b1, 3, '1min' ], [ $a2, 2, '0' ], [ $b2, 4, '0' ])
		{
			my ($backend, $n, $timeout) = @$turn;
			my $result = $backend->run(acquire('/other', $n, $timeout));
			push @refused, "$n: $result->{out}$result->{err}" if $result->{err} || $result->{out} ne 't';
			$backend->run('SELECT zk_lock_release_all()');
		}
	}
	is_deeply(\@refused, [], "linger $linger: two servers alternate between numbers of leases");
}

# A lease that is held is in use, whether the request tries or waits, and its holder keeps it.
foreach my $timeouts ([ '0', '20s' ], [ '20s', '0' ])
{
	$a1->query(release('/other')) if $a1->query(held('/other')) eq 't';
	$a1->query(acquire('/other', 2));
	is($b1->errcode(acquire('/other', 3, $_)), '22023', "in use with another number: $_") foreach @$timeouts;
}
is($a1->query(q{SELECT zk_lock_is_held('/other') AND NOT zk_lock_is_revoked('/other')}), 't', 'its holder keeps it, and is not asked for it');
$a1->query(release('/other'));
is($b1->query(acquire('/other', 3, '0')), 't', 'a lease that was in use does not linger');
$b1->query(release('/other'));
$_->set('zklock.linger', 0) foreach $node_a, $node_b;
is_clean('/other', 'another number');

# A server of 1.1 does not know the query, and so does not answer: its mutex is in use, even if no client waits for it.
$node_b->set('zklock.session_timeout', '1s');
my $mute = $zk->create('/zklock/mute/_c_00000000-0000-8b4c-8000-000000000000-lock-', sequence => 1, data => 'of 1.1');
is($b1->errcode(acquire('/mute', 3, '20s')), 'ZK003', 'a mutex whose server does not answer is in use');
like($zk->get($mute)->{data}, qr/ query=t$/, 'it was queried');
$zk->delete($mute);
$node_b->set('zklock.session_timeout', '30s');

# --- all or nothing ---

$a1->query(acquire('/all', 3, undef, 2));
is($b1->query(acquire('/all', 3, '0', 2)), 'f', 'a try for more than there is gets nothing');
$zk->wait_for_children(leases('/all'), 2);
is($b1->query(acquire('/all', 3, '100ms', 2)), 'f', 'nor does a wait');
$zk->wait_for_children(leases('/all'), 2);
$zk->wait_for_children(inner('/all'), 0);
is($b2->query(acquire('/all', 3, '0', 1)), 't', 'what is there was not taken away');
$b2->query(release('/all'));

wait_with_leases($node_b, $b1, '/all', 3, 2, 1);
cmp_ok(nleases('/all'), '>', 3, 'the waiter has its leases in ZooKeeper already');
is(scalar(@{ $zk->children(inner('/all')) }), 1, 'and the inner mutex');
$node_a->wait_until(q{SELECT bool_and(contended) FROM zk_locks WHERE path = '/all'});
is($node_a->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE path = '/all' AND granted}), 2, 'its claim does not count as held');
is($node_b->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE path = '/all' AND granted}), 0, 'not a single one');
is($node_b->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE path = '/all' AND claim = 'waiting'}), 1, 'there is one waiter');
$a1->query(release('/all'));
is($b1->answer, 't', 'it has both as soon as they are there');
is(nleases('/all'), 3, 'and a has kept one');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;
is_clean('/all', 'all or nothing');

# Two backends that want all leases do not wait for each other with one lease in hand.
foreach my $pair ([ 'two servers', $a1, $b1 ], [ 'one server', $a1, $a2 ])
{
	my ($what, @backends) = @$pair;
	$_->send(q{DO $$ BEGIN FOR i IN 1 .. 30 LOOP
			IF NOT zk_semaphore_acquire('/both', 2, NULL, 2) THEN RAISE 'false'; END IF;
			PERFORM zk_semaphore_release('/both', 2);
		END LOOP; END $$}) foreach @backends;
	is($_->result->{err}, '', "$what: 2 of 2, again and again") foreach @backends;
	is_clean('/both', $what);
}

# --- in turn ---

$a1->query(acquire('/turn', 3, undef, 3));
wait_with_leases($node_b, $b1, '/turn', 3, 3, 3);
wait_for_turn($node_a, $a2, '/turn', 3, 1, 1);
$node_b->wait_until_contended('/turn/locks');
wait_for_turn($node_b, $b2, '/turn', 3, 1, 1);
is($a3->query(acquire('/turn', 3, '0')), 'f', 'a try while others wait');
$a1->query(release('/turn', 2));
is($a3->query(acquire('/turn', 3, '0')), 'f', 'a try while some are free, but others wait');
ok(!grep({ $_->is_done } $a2, $b1, $b2), 'a backend that wants few leases does not pass one that wants many');
$a1->query(release('/turn'));
is($b1->answer, 't', 'the first one');
ok(!$a2->is_done && !$b2->is_done, 'only the first one');
$b1->query(release('/turn'));
is($a2->answer, 't', 'the second one');
$zk->wait_until(sub { @{ $zk->children(inner('/turn')) } == 1 }, 'the third one to have the inner mutex');
ok(!$b2->is_done, 'only the second one');
$b1->query(release('/turn', 2));
is($b2->answer, 't', 'the third one');
$_->query('SELECT zk_lock_release_all()') foreach $a2, $b2;
is_clean('/turn', 'in turn');

# A waiter in the middle gives up.
my %give_up = (
	'pg_cancel_backend' => sub { my ($node, $backend) = @_; $node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $backend->pid . ')'); is($backend->result->{errcode}, '57014', 'cancelled'); return $backend; },
	'pg_terminate_backend' => sub { my ($node, $backend) = @_; $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $backend->pid . ')'); is($backend->result->{errcode}, '57P01', 'terminated'); return $node->backend; });
foreach my $way (sort keys %give_up)
{
	$a1->query(acquire('/middle', 2, undef, 2));
	wait_with_leases($node_b, $b1, '/middle', 2, 2, 2);
	wait_for_turn($node_a, $a2, '/middle', 2, 1, 1);
	$node_b->wait_until_contended('/middle/locks');
	wait_for_turn($node_b, $b2, '/middle', 2, 1, 1);
	$a2 = $give_up{$way}->($node_a, $a2);
	$node_a->wait_until(q{SELECT count(*) = 2 FROM zk_locks WHERE path LIKE '/middle%'});
	$b1 = $give_up{$way}->($node_b, $b1);
	ok(!$b2->is_done, "$way: the next one still waits");
	$node_b->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/middle' AND ticket = 'queued'});
	$zk->wait_for_children(leases('/middle'), 3);
	$a1->query(release('/middle'));
	is($b2->answer, 't', "$way: and is served");
	$_->query('SELECT zk_lock_release_all()') foreach $a1, $b2;
	is_clean('/middle', $way);
}

# A try that wants more leases than the waiter of the same server does not stand in the waiter's
# way.
$_->query(acquire('/surplus', 2)) foreach $b1, $b2;
wait_with_leases($node_a, $a1, '/surplus', 2, 1, 1);
is($a2->query(acquire('/surplus', 2, '0', 2)), 'f', 'a try that wants more than the waiter');
$zk->wait_for_children(leases('/surplus'), 3);
$b1->query(release('/surplus'));
is($a1->answer, 't', 'the waiter is served as soon as there is a lease');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $b2;
is_clean('/surplus', 'surplus');

# --- a holder that wants more leases ---

$a1->query(acquire('/more', 3));
$b1->query(acquire('/more', 3, undef, 2));
wait_with_leases($node_a, $a1, '/more', 3, 2, 2);
is($node_a->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE claim = 'waiting') FROM zk_locks WHERE path = '/more'}),
	'1|1', 'one lease is held and one waits');
is($node_a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $a1->pid . ')') && $a1->result->{errcode}, '57014', 'cancelled');
is($a1->query(held('/more')), 't', 'the backend still has what it had');
$zk->wait_for_children(leases('/more'), 3);
wait_with_leases($node_a, $a1, '/more', 3, 2, 2);
$b1->query(release('/more', 2));
is($a1->answer, 't', 'served');
is($a1->query(release('/more', 3)), 't', 'all of them are released together');
is_clean('/more', 'more');

$a1->query(acquire('/more', 3));
$b1->query(acquire('/more', 3, undef, 2));
wait_with_leases($node_a, $a1, '/more', 3, 2, 2);
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $a1->pid . ')');
is($a1->result->{errcode}, '57P01', 'terminated while it wants more');
$a1 = $node_a->backend;
$zk->wait_for_children(leases('/more'), 2);
is($b1->query(acquire('/more', 3, '1min')), 't', 'neither what it held nor what it wanted is left');
$b1->query('SELECT zk_lock_release_all()');
is_clean('/more', 'terminated while it wants more');

# --- however a backend or a server ends ---

my %end = (
	'exit' => sub { $_[0]->quit },
	'client gone' => sub { $_[0]->kill_client },
	'pg_terminate_backend' => sub { $node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $_[0]->pid . ')') },
	'kill -9 of the backend' => sub {
		my $session = $node_a->status('session_id');
		kill 'KILL', $_[0]->pid;
		$node_a->wait_until("SELECT session_id <> '$session' FROM zk_status");	# the server has started anew
		$node_a->wait_until_connected;
	},
	'kill -9 of the server' => sub { $node_a->kill9_all; $node_a->start; $node_a->wait_until_connected; });
foreach my $way ('exit', 'client gone', 'pg_terminate_backend', 'kill -9 of the backend', 'kill -9 of the server')
{
	my $holder = $node_a->backend;
	$holder->query(acquire('/end', 3, undef, 2));
	$holder->query('BEGIN; SELECT zk_xact_semaphore_acquire($$/end$$, 3)');
	wait_with_leases($node_b, $b1, '/end', 3, 3, 3);
	$end{$way}->($holder);
	is($b1->answer, 't', "$way: all leases come back");
	is(nleases('/end'), 3, "$way: no more leases than the new holders have");
	$b1->query(release('/end', 3));
	is_clean('/end', $way);
}
($a1, $a2, $a3) = map { $node_a->backend } 1 .. 3;

# The same for a waiter with leases in ZooKeeper and the inner mutex.
foreach my $way ('exit', 'kill -9 of the backend', 'kill -9 of the server')
{
	my $waiter = $node_a->backend;
	$b1->query(acquire('/waiter', 2, undef, 2));
	wait_with_leases($node_a, $waiter, '/waiter', 2, 2, 2);
	wait_for_turn($node_b, $b2, '/waiter', 2, 1, 1);
	$way eq 'exit' ? $node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $waiter->pid . ')') : $end{$way}->($waiter);
	$node_b->wait_until(q{SELECT bool_and(ticket = 'owned') FROM zk_locks WHERE path = '/waiter/locks'});
	$zk->wait_for_children(leases('/waiter'), 2);
	ok(!$b2->is_done, "$way of the waiter: the next one has the inner mutex, and waits for a lease");
	$b1->query(release('/waiter'));
	is($b2->answer, 't', "$way of the waiter: the next one is served");
	$_->query('SELECT zk_lock_release_all()') foreach $b1, $b2;
	is_clean('/waiter', "$way of the waiter");
}
($a1, $a2, $a3) = map { $node_a->backend } 1 .. 3;

# --- the session expires ---

$a1->query(acquire('/expire', 3, undef, 2));
$a2->query('BEGIN; SET LOCAL zklock.on_lost = notice; SELECT zk_xact_semaphore_acquire($$/expire$$, 3)');
wait_with_leases($node_b, $b1, '/expire', 3, 3, 3);
$node_a->expire_session($zk, by_hand => 1);
is($b1->answer, 't', 'leases of an expired session are free');
is($a1->query(held('/expire')), 'f', 'they are not held any more');
is($a1->errcode(acquire('/expire', 3, '0')), 'ZK001', 'a backend that has lost some leases cannot have more');
is($a1->errcode(token('/expire')), 'ZK001', 'nor a token');
is($a2->errcode('COMMIT'), 'ZK001', 'and does not commit');
my $result = $a1->run(release('/expire'));
is($result->{out}, 'f', 'release of a lost lease');
like($result->{err}, qr/lock "\/expire" was lost/, 'warns');
is($a1->query('SELECT zk_lock_release_all()'), 1, 'the other one');
wait_with_leases($node_a, $a1, '/expire', 3, 1, 1);
$b1->query(release('/expire', 3));
is($a1->answer, 't', 'then the backend can have one again');
is($a1->query(held('/expire')), 't', 'and holds it');
$a1->query(release('/expire'));
is_clean('/expire', 'expired');

# A waiter with the inner mutex, and a waiter for the inner mutex, both go on waiting.
$b1->query(acquire('/wait', 2, undef, 2));
wait_with_leases($node_a, $a1, '/wait', 2, 2, 2);
wait_for_turn($node_a, $a2, '/wait', 2, 1, 1);
$node_a->expire_session($zk, by_hand => 1);
$zk->wait_until(sub { @{ $zk->children(leases('/wait')) } > 2 }, 'a client to be the first now');
ok(!$a1->is_done && !$a2->is_done, 'they wait on with a new session');
is($node_a->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE path = '/wait' AND claim = 'waiting'}), 2, 'both of them');
$b1->query(release('/wait', 2));
$zk->wait_until(sub { $a1->is_done || $a2->is_done }, 'one of them');
my ($first, $second) = $a1->is_done ? ($a1, $a2) : ($a2, $a1);
is($first->result->{out}, 't', 'one of them is granted');
is($first->query('SELECT zk_lock_release_all()') > 0, 1, 'and releases');
is($second->result->{out}, 't', 'then the other one');
$second->query('SELECT zk_lock_release_all()');
is_clean('/wait', 'the session of the waiters expired');

# The path was a mutex before, whose ticket is still there when the session expires.
$node_a->set('zklock.linger', '1h');
$a2->query("SELECT zk_lock_acquire('/was_mutex'), zk_lock_release('/was_mutex')") foreach 1, 2;
is($node_a->safe_psql('postgres', q{SELECT ticket FROM zk_locks WHERE path = '/was_mutex'}), 'lingering', 'a mutex lingers');
$zk->create(inner('/was_mutex') . '/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-', ephemeral => 1, sequence => 1, client => 'foreign');
$a1->send(acquire('/was_mutex', 2));
$node_a->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/was_mutex/locks' AND ticket = 'queued'});
$node_a->expire_session($zk, by_hand => 1);
$zk->close('foreign');
is($a1->answer, 't', 'a waiter for a semaphore does not mind what its path was before');
$a1->query(release('/was_mutex'));
$node_a->set('zklock.linger', '0');
$a1->query("SELECT zk_semaphore_acquire('/was_mutex', 2), zk_lock_release_all()");
is_clean('/was_mutex', 'was a mutex');

# --- the worker restarts ---

$a1->query(acquire('/worker', 2));
$b1->query(acquire('/worker', 2));
wait_with_leases($node_a, $a2, '/worker', 2, 1, 1);
wait_for_turn($node_a, $a3, '/worker', 2, 1, 1);
my $worker = $node_a->worker_pid;
$node_a->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
$node_a->wait_until("SELECT worker_pid <> $worker AND state IN ('connected', 'idle') AND safe FROM zk_status");
is($a1->query(held('/worker')), 't', 'a new worker: what was held is held');
ok(!$a2->is_done && !$a3->is_done, 'a new worker: the waiters wait');
$b1->query(release('/worker'));
is($a2->answer, 't', 'a new worker: until it is served');
ok(!$a3->is_done, 'a new worker: one after the other');
$a1->query(release('/worker'));
is($a3->answer, 't', 'a new worker: the last one');
$_->query(release('/worker')) foreach $a2, $a3;
is_clean('/worker', 'a new worker');

# --- znodes are deleted by hand ---

# A lease that is held.
$a1->query(acquire('/delete', 2));
$a2->query(acquire('/delete', 2));
my ($mine) = $a1->query(q{SELECT znode FROM zk_locks WHERE path = '/delete' AND pid = pg_backend_pid()});
$zk->delete(leases('/delete') . "/$mine");
$node_a->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/delete'});
is($a1->query(held('/delete')), 'f', 'it is not held');
is($a1->errcode(token('/delete')), 'ZK001', 'a lease whose znode was deleted is lost');
is($a2->query(held('/delete')), 't', 'others are not');
is($b1->query(acquire('/delete', 2, '1min')), 't', 'another backend can have it');
is($b1->query(acquire('/delete', 2, '0')), 'f', 'but no more');
$a1->run('SELECT zk_lock_release_all()');
$_->query('SELECT zk_lock_release_all()') foreach $a2, $b1;
is_clean('/delete', 'a lease was deleted');

# One of two leases is deleted: the claim is lost, and its release gives both back.
$a1->query(acquire('/delete', 2, undef, 2));
$zk->delete(leases('/delete') . '/' . $zk->children(leases('/delete'))->[0]);
$node_a->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/delete'});
is($a1->query(held('/delete')), 'f', 'it is not held');
is(nleases('/delete'), 1, 'one of two was deleted');
is($b1->query(acquire('/delete', 2, '0', 2)), 'f', 'the other one still counts');
$a1->run('SELECT zk_lock_release_all()');
is($b1->query(acquire('/delete', 2, '1min', 2)), 't', 'then both are free');
$b1->query(release('/delete', 2));
is_clean('/delete', 'one of two was deleted');

# While a statement runs: it is cancelled.
$a1->query(acquire('/delete', 2));
$a1->send('SELECT pg_sleep(3600)');
$node_a->wait_until("SELECT state = 'active' AND query ~ 'pg_sleep' FROM pg_stat_activity WHERE pid = " . $a1->pid);
$zk->delete(leases('/delete') . '/' . $zk->children(leases('/delete'))->[0]);
is($a1->result->{errcode}, 'ZK001', 'the statement of the backend that lost a lease is cancelled');
is($a2->query(acquire('/delete', 3, '0')), 't', 'a lost lease is not in use: another number of leases');
$a2->query(release('/delete'));
$a1->run('SELECT zk_lock_release_all()');
is_clean('/delete', 'while a statement runs');

# A lease that waits.
$b1->query(acquire('/delete', 2, undef, 2));
wait_with_leases($node_a, $a1, '/delete', 2, 1, 1);
my %before = map { $_ => 1 } @{ $zk->children(leases('/delete')) };
my ($waiting) = grep { sprintf('0x%x', $zk->exists(leases('/delete') . "/$_")->{ephemeralOwner}) eq $node_a->status('session_id') } keys %before;
$zk->delete(leases('/delete') . "/$waiting");
$zk->wait_for_children(leases('/delete'), sub { @{ $_[0] } == 3 && grep { !$before{$_} } @{ $_[0] } });
ok(!$a1->is_done, 'a lease that waited was deleted: there is a new one');
$b1->query(release('/delete'));
is($a1->answer, 't', 'and it is granted');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;
is_clean('/delete', 'a lease that waited was deleted');

# The znode with which a waiter has the inner mutex is deleted.  The next client has the inner mutex
# then, and neither takes from the other the leases that it has collected.
$zk->create(leases('/inner') . '/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lease-', ephemeral => 1, sequence => 1, client => 'foreign');
$a1->send(acquire('/inner', 2, undef, 2));
$zk->wait_for_children(leases('/inner'), 3);
wait_for_turn($node_b, $b1, '/inner', 2, 1, 1);
$node_b->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/inner/locks' AND ticket = 'queued'});
$mine = $node_a->safe_psql('postgres', q{SELECT znode FROM zk_locks WHERE path = '/inner/locks'});
$zk->delete(inner('/inner') . "/$mine");
$zk->wait_until(sub { $b1->is_done }, 'the next waiter to have the inner mutex');
is($b1->answer, 't', 'the inner mutex was deleted: the next one has it, and a lease');
ok(!$a1->is_done, 'the inner mutex was deleted: the waiter that had it waits on');
$b1->query(release('/inner'));
$zk->close('foreign');
is($a1->answer, 't', 'the inner mutex was deleted: and is served in the end');
$a1->query(release('/inner', 2));
is_clean('/inner', 'the inner mutex was deleted');

# --- leases of others ---

my @foreign = map {
	$zk->create(leases('/foreign') . '/' . $_, ephemeral => 1, sequence => 1, client => 'foreign')
} '_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lease-', 'junk', '_c_2b4e28ba-2fa1-41d2-883f-0016d3cca427-lease-';
is($a1->query(acquire('/foreign', 3, '0')), 'f', 'everything below "leases" counts');
$zk->delete($foreign[2]);
is($a1->query(acquire('/foreign', 3, '1min')), 't', 'and no more than that');
is($b1->query(acquire('/foreign', 3, '0')), 'f', 'together with our own');
$b1->send(acquire('/foreign', 3));
$node_a->wait_until(q{SELECT bool_and(contended) FROM zk_locks WHERE path = '/foreign'});
ok(!$b1->is_done, 'waits for a foreign client');
$zk->delete($foreign[1]);
is($b1->answer, 't', 'until that has gone');
$zk->close('foreign');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;
is_clean('/foreign', 'leases of others');

# Another client has the inner mutex: a try does not need it, a wait does.
$zk->create(inner('/foreign') . '/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-', ephemeral => 1, sequence => 1, client => 'foreign');
is($a1->query(acquire('/foreign', 2, '0')), 't', 'a try goes without the inner mutex');
is($b1->query(acquire('/foreign', 2, '100ms')), 'f', 'a wait does not');
$b1->send(acquire('/foreign', 2));
$zk->wait_for_children(inner('/foreign'), 2);
$zk->close('foreign');
is($b1->answer, 't', 'it goes on when it has it');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;
is_clean('/foreign', 'the inner mutex of others');

# --- revoked ---

$a1->query(acquire('/revoke', 1));
$a2->send(acquire('/revoke', 1));
$node_a->wait_for_waiter('/revoke', 1);
my $revoked = leases('/revoke') . '/' . $zk->children(leases('/revoke'))->[0];
$zk->set($revoked, '__REVOKE__');
$a1->wait_until(q{SELECT zk_lock_is_revoked('/revoke')});
pass('a lease can be revoked');
my $old_token = $a1->query(token('/revoke'));
$a1->query(release('/revoke'));
is($a2->answer, 't', 'the waiter of the same server is given another lease');
ok(!$zk->exists($revoked), 'and the lease whose release was requested is gone');
cmp_ok($a2->query(token('/revoke')), '>', $old_token, 'the token grows');
is($a2->query(q{SELECT zk_lock_is_revoked('/revoke')}), 'f', 'the new one is not revoked');
$a2->query(release('/revoke'));
is_clean('/revoke', 'revoked');

# --- linger ---

$node_a->set('zklock.linger', '1h');
$node_b->set('zklock.linger', '1h');
$a1->query(acquire('/linger', 3, undef, 2)), $a1->query(release('/linger', 2)) foreach 1 .. 3;
is($node_a->safe_psql('postgres', q{SELECT string_agg(ticket, ', ') FROM zk_locks WHERE path = '/linger'}),
	'lingering, lingering', 'leases that come back linger');
is(nleases('/linger'), 2, 'in ZooKeeper, too');
my $tickets = $node_a->status('tickets');

# The worker still has work to do for new tickets; it is done after a while.
my $quiet = 0;
$zk->wait_until(
	sub {
		my $requests = $node_a->status('requests');
		$a1->query(acquire('/linger', 3, undef, 2));
		$a1->query(release('/linger', 2));
		$a2->query(acquire('/linger', 3, '0', 1));
		$a2->query(release('/linger'));
		$quiet = $node_a->status('requests') == $requests ? $quiet + 1 : 0;
		return $quiet == 10;
	},
	'leases that are used again without any request to ZooKeeper');
pass('leases that linger are used again without any request to ZooKeeper');
is($node_a->status('tickets'), $tickets, 'and no new lease is made');
is($node_a->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), 0, 'no advisory lock');
is($a2->query(acquire('/linger', 3, '1min', 3)), 't', 'one more than linger');
is($node_a->status('tickets') - $tickets, 1, 'is the only one that is made');
is($b1->query(acquire('/linger', 3, '0')), 'f', 'none is left');
$a2->query(release('/linger', 3));

# Lingering leases stand in no client's way.
is($b1->query(acquire('/linger', 3, '1min', 3)), 't', 'the other server has all of them at once');
is(nleases('/linger'), 3, 'none lingers any more');
$b1->query(release('/linger', 3));
$a1->query(acquire('/linger', 3, '1min', 2)), $a1->query(release('/linger', 2)) foreach 1 .. 2;
$b1->wait_until(acquire('/linger', 3, '0', 3));
is($b1->query(held('/linger')), 't', 'also if it only tries, and tries again');
$b1->query(release('/linger', 3));
$a1->query(acquire('/linger', 3, '1min', 2)), $a1->query(release('/linger', 2)) foreach 1 .. 2;
is($b1->query(acquire('/linger', 3, '0')), 't', 'one that does not linger can be had at once');
$b1->query(release('/linger'));

# Another number of leases: the old leases are not in use.
$a1->query(acquire('/linger', 3, '1min', 3)), $a1->query(release('/linger', 3)) foreach 1 .. 2;
is($a1->query(acquire('/linger', 2, '1min', 2)), 't', 'another n while leases linger');
is($a2->errcode(acquire('/linger', 3, '0')), '22023', 'now that is the one in use');
is($a1->query(release('/linger', 2)), 't', 'released');

# And another kind of lock.
is($a1->query("SELECT zk_lock_acquire('/linger', '1min')"), 't', 'a mutex while leases linger');
$zk->wait_for_children(leases('/linger'), 0);
is($a2->errcode(acquire('/linger', 2, '0')), 'ZK003', 'now it is a mutex');
is($b1->errcode(acquire('/linger', 2, '0')), 'ZK003', 'on every server');
$a1->query('SELECT zk_lock_release_all()');
$b1->query(q{SELECT zk_lock_acquire('/way'), zk_lock_release('/way')}) foreach 1 .. 2;
is($node_b->safe_psql('postgres', q{SELECT ticket FROM zk_locks WHERE path = '/way'}), 'lingering', 'a mutex lingers on the other server');
is($a1->query(acquire('/way', 2, '0')), 't', 'and gives way to a semaphore');
$a1->query(release('/way'));

# Whatever the tenure is, a server does not hand its leases on among its own backends while others
# wait.
foreach my $tenure ('0', '1h')
{
	$node_a->set('zklock.tenure', $tenure);
	$node_b->set('zklock.tenure', $tenure);
	$a1->query(acquire('/tenure', 1));
	wait_with_leases($node_b, $b1, '/tenure', 1, 1, 1);
	wait_for_turn($node_a, $a2, '/tenure', 1, 1, 1);
	$a1->query(release('/tenure'));
	is($b1->answer, 't', "tenure $tenure: first come, first served");
	ok(!$a2->is_done, "tenure $tenure: the second one waits");
	$b1->query(release('/tenure'));
	is($a2->answer, 't', "tenure $tenure: and is served");
	$a2->query(release('/tenure'));
}

# --- all servers agree on n, which is in the data of the directory, as for kazoo ---

$_->set('zklock.linger', '0') foreach $node_a, $node_b;

sub stored { my ($path) = @_; return $zk->get("/zklock$path")->{data}; }

$a1->query(acquire('/stored', 3));
is(stored('/stored'), '3', 'n is stored');
is($b1->errcode(acquire('/stored', 4, $_)), '22023', 'another server may not use another one') foreach undef, '0', '1s';
is($b1->query(acquire('/stored', 3)), 't', 'but the same');
$_->query(release('/stored')) foreach $a1, $b1;
is_clean('/stored', 'n is stored');
is($b1->query(acquire('/stored', 4)), 't', 'the semaphore is not in use: another n is fine');
is(stored('/stored'), '4', 'and stored');
is($a1->errcode(acquire('/stored', 3)), '22023', 'so now the old one is not');
$b1->query(release('/stored'));
is_clean('/stored', 'another n is stored');

$zk->create(leases('/kazoo') . '/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lease-', ephemeral => 1, sequence => 1, client => 'foreign');
$zk->set('/zklock/kazoo', '2');
is($a1->errcode(acquire('/kazoo', 3)), '22023', 'what others have stored counts');
is($a1->query(acquire('/kazoo', 2)), 't', 'and can be used');
$a1->query(release('/kazoo'));
$zk->set('/zklock/kazoo', 'not a number');
is($a1->query(acquire('/kazoo', 3)), 't', 'what is no number says nothing');
is(stored('/kazoo'), 'not a number', 'and is left alone');
$a1->query(release('/kazoo'));
$zk->close('foreign');
is_clean('/kazoo', 'what others have stored');

is($a1->query(acquire('/never_seen', 5, '0')), 't', 'a try, where there was no directory yet');
is(stored('/never_seen'), '5', 'n is stored all the same');
$a1->query(release('/never_seen'));
is_clean('/never_seen', 'a try');

# n = 1 is a mutex: its tokens grow, whichever server has it.
my $last = 0;
my $grows = 1;
foreach my $backend (($a1, $a1, $a2, $b1, $b1, $a1) x 5)
{
	$backend->query(acquire('/token', 1, '1min'));
	my $token = $backend->query(token('/token'));
	$grows &&= $token > $last;
	$last = $token;
	$backend->query(release('/token'));
}
ok($grows, 'n = 1: tokens grow from claim to claim');

# A claim that requests a lease often gets another one, which was put back meanwhile.  Then the next claim
# takes the requested one.
$node_a->set('zklock.linger', '10s');
my $script = PostgreSQL::Test::Utils::tempdir() . '/turns';
append_to_file($script, acquire('/turns', 4) . ";\n" . release('/turns') . ";\n");
my $creates = $a1->query('SELECT creates FROM zk_stat');
command_ok([ 'pgbench', '-n', '-c', 16, '-j', 2, '-t', 100, '-M', 'prepared', '-f', $script, '-h', $node_a->host, '-p', $node_a->port, 'postgres' ],
	'turns: many backends, a few leases');
cmp_ok($a1->query("SELECT creates - $creates FROM zk_stat"), '<', 30, 'turns: the server keeps what it has requested');
foreach my $node ($node_a, $node_b)
{
	$node->set('zklock.linger', '20ms');
	$node->set('zklock.tenure', '5ms');
}
$_->quit foreach $a1, $a2, $a3, $b1, $b2;

# --- many ---

my $history = History->new;
my %node_of = (a => $node_a, b => $node_b);
foreach my $server ('a', 'b')
{
	foreach my $quantity (1, 1, 2, 3, 4)
	{
		my $who = $server . $quantity . '-' . keys %{ $history->{pids} };
		$history->hammer_sql($node_of{$server}, $who, acquire('/storm', 4, undef, $quantity), release('/storm', $quantity),
			mode => $quantity, hold_us => 500);
	}
}
$history->work_until(sub { $history->each_has(15) }, '15 rounds of each');
is_deeply([ $history->problems(leases => 4) ], [], 'never more than there are: ' . $history->summary);
cmp_ok($history->most_at_a_time, '>', 1, 'but more than one at a time');
is_clean('/storm', 'many');

# Each try gets an answer or a lease, and leaves nothing behind.
$history = History->new;
foreach my $server ('a', 'b')
{
	foreach my $quantity (1, 1, 2)
	{
		my $who = $server . $quantity . '-' . keys %{ $history->{pids} };
		$history->hammer_sql($node_of{$server}, $who,
			"DO \$\$ BEGIN WHILE NOT zk_semaphore_acquire('/tries', 2, '0', $quantity) LOOP PERFORM pg_sleep(0.001 * random()); END LOOP; END \$\$; SELECT true",
			release('/tries', $quantity), mode => $quantity, hold_us => 500);
	}
}
$history->work_until(sub { $history->each_has(10) }, '10 rounds of each, by tries');
is_deeply([ $history->problems(leases => 2) ], [], 'only tries: never more than there are: ' . $history->summary);
is_clean('/tries', 'only tries');

# --- nothing is left ---

foreach my $node ($node_a, $node_b)
{
	$node->wait_until('SELECT entries = 0 AND ephemeral_bytes = 0 FROM zk_status');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), 0, 'no claim and no ticket is left');
	$node->stop;
}
is_deeply([ grep { /lease-|lock-|junk/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');

done_testing();
