
# Several mutexes at once, on three servers: all or none, whatever the order in which they are
# named, and without a deadlock.

use strict;
use warnings;

use List::Util qw(shuffle);

use ZklockTest qw(!acquire !release !held);

my $zk = ZooKeeper->new;
my @settings = (
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min',
	'zklock.tenure' => '5ms',
	'zklock.linger' => 0,
	'max_locks_per_transaction' => 256);
my %node = map { $_ => ZklockNode->started($_, $zk, @settings) } 'a', 'b', 'c';
my ($node_a, $node_b) = @node{ 'a', 'b' };
my ($a1, $a2, $b1, $b2) = map { $_->backend } $node_a, $node_a, $node_b, $node_b;

sub paths { return 'ARRAY[' . join(', ', map { "'/m/$_'" } @_) . ']::text[]'; }
sub acquire
{
	my ($timeout, @names) = @_;
	return 'SELECT zk_multilock_acquire(' . paths(@names) . (defined $timeout ? ", '$timeout'" : '') . ')';
}
sub release { return 'SELECT zk_multilock_release(' . paths(@_) . ')'; }
sub lock_one { my ($name, $timeout) = @_; return "SELECT zk_lock_acquire('/m/$name', '" . ($timeout // '1min') . "')"; }
sub held { my ($name) = @_; return "SELECT zk_lock_is_held('/m/$name')"; }
sub znodes { my ($name) = @_; return scalar @{ $zk->children("/zklock/m/$name") }; }
sub all_claims { my ($node) = @_; return $node->safe_psql('postgres', q{SELECT coalesce(string_agg(path || ' ' || claim, ', ' ORDER BY path), '') FROM zk_locks WHERE claim IS NOT NULL}); }

# Nothing is left in any server, nor in ZooKeeper.
sub is_clean
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$_->wait_until('SELECT NOT EXISTS (SELECT FROM zk_locks)') foreach values %node;
	is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], "$what: no znode is left");
	is_deeply([ map { $_->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}) } values %node ],
		[ 0, 0, 0 ], "$what: and no advisory lock");
	return;
}

# --- all of them ---

is($a1->query(acquire(undef, 'c', 'a', 'b', 'a')), 't', 'three at once');
is_deeply([ map { znodes($_) } 'a' .. 'c' ], [ 1, 1, 1 ], 'a znode for each');
is($b1->query(lock_one('b', '0')), 'f', 'they exclude others');
is($b1->query(acquire('0', 'c', 'd')), 'f', 'all or none: a try');
is(znodes('d'), 0, 'nothing of it is left') if $zk->wait_for_children('/zklock/m/d', 0);
my %token = map { $_ => $a1->query("SELECT zk_lock_token('/m/$_')") } 'a' .. 'c';
is(scalar(keys %{ { reverse %token } }), 3, 'each has a token of its own');
is($a1->query(release('a', 'b', 'c')), 't', 'released together');
is($b1->query(acquire('1min', 'a', 'b', 'c')), 't', 'the other server has them');
cmp_ok($b1->query("SELECT zk_lock_token('/m/$_')"), '>', $token{$_}, "the token of $_ grows") foreach 'a' .. 'c';
$b1->query('SELECT zk_lock_release_all()');
is_clean('three at once');

# --- they are asked for together ---

# Two requests for each, create and list, however many there are; what makes the
# directories is not counted, and neither are watches.
my @hundred = map { "h$_" } 1 .. 100;
$a1->query(acquire(undef, @hundred));
$a1->query(release(@hundred));
is_clean('a hundred, the first time');
my $requests = $node_a->status('requests');
my $tickets = $node_a->status('tickets');
$a1->query(acquire(undef, @hundred));
cmp_ok($node_a->status('requests') - $requests, '>=', 200, 'a hundred: create and list each');
is($node_a->status('tickets') - $tickets, 100, 'a hundred: one ticket each');
$a1->query(release(@hundred));
is_clean('a hundred');

# While ZooKeeper does not answer, all of them are on their way.
$zk->pause(1);
$a1->send(acquire(undef, @hundred));
$node_a->wait_until(q{SELECT count(*) = 100 FROM zk_locks WHERE claim = 'waiting' AND ticket = 'wanted'});
pass('a hundred: the backend requests the next without waiting for the one before');
$zk->resume(1);
is($a1->answer, 't', 'a hundred: then they come');
$a1->query(release(@hundred));
is_clean('a hundred on their way');

my @thousand = map { "t$_" } shuffle(1 .. 1000);
is($a1->query(acquire(undef, @thousand)), 't', 'a thousand');
is($node_a->safe_psql('postgres', q{SELECT count(*), count(token), count(DISTINCT znode) FROM zk_locks WHERE granted}),
	'1000|1000|1000', 'a thousand: each held, with a token and a znode');
is($b1->query(acquire('0', @thousand[ 998 .. 999 ])), 'f', 'a thousand: others have none of them');
$b1->send(acquire('1min', @thousand));
$node_b->wait_until(q{SELECT count(*) >= 1 FROM zk_locks WHERE claim = 'waiting' AND ticket = 'queued'});
$a1->query(release(@thousand));
is($b1->answer, 't', 'a thousand: handed over');
$b1->query('SELECT zk_lock_release_all()');
is_clean('a thousand');

# --- a waiter has the locks before the one for which it waits, and none of those behind it ---

$b1->query(lock_one('b'));
$a1->send(acquire(undef, 'c', 'b', 'a'));
$node_a->wait_for_ticket('/m/b', 'queued');
$zk->wait_for_children('/zklock/m/c', 0);
is(all_claims($node_a), '/m/a held, /m/b waiting', 'waits for the second, has the first, and not the third');
is($b2->query(lock_one('c', '0')), 't', 'others can have the third');
is($b2->query(lock_one('a', '0')), 'f', 'but not the first');
$b1->query('SELECT zk_lock_release_all()');
$node_a->wait_for_ticket('/m/c', 'queued');
is(all_claims($node_a), '/m/a held, /m/b held, /m/c waiting', 'goes on to the third');
$b2->query('SELECT zk_lock_release_all()');
is($a1->answer, 't', 'and has all');
$a1->query('SELECT zk_lock_release_all()');
is_clean('one after the other');

# Locks that the session held already stay, and are counted once more.
$a1->query(lock_one('b'));
$b1->query(lock_one('c'));
is($a1->query(acquire('100ms', 'a', 'b', 'c')), 'f', 'one that is held already does not help');
is(all_claims($node_a), '/m/b held', 'but it stays, alone');
is($a1->query(release('b')), 't', 'and is held once');
is($a1->run(release('b'))->{out}, 'f', 'no more than once');
$b1->query('SELECT zk_lock_release_all()');
is_clean('held already');

# --- one deadline ---

# Half of the time goes by with the first one.  What is left is for the last one, with as much to spare on a
# slow machine; if that had the whole time again, it would take 18 seconds.
$zk->create("/zklock/m/$_/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-", ephemeral => 1, sequence => 1, client => $_)
  foreach 'a' .. 'd';
$a1->send(acquire('12s', 'a' .. 'd'));
$node_a->wait_until(q{SELECT bool_and(claim_since < clock_timestamp() - interval '6s') FROM zk_locks WHERE path = '/m/a'});
$zk->close($_) foreach 'a' .. 'c';
$node_a->wait_for_ticket('/m/d', 'queued');
my $result = $a1->result;
is($result->{out}, 'f', 'the last one was not to be had in time');
cmp_ok($result->{seconds}, '>=', 12, 'it has waited as long as it should');
cmp_ok($result->{seconds}, '<', 17.5, 'and not so long for each');
$zk->close('d');
is_clean('one deadline');

# --- a multilock that fails leaves nothing behind ---

my %fail = (
	'timeout' => [ acquire('50ms', 'a', 'b', 'c'), '', sub { } ],
	'try' => [ acquire('0', 'a', 'b', 'c'), '', sub { } ],
	'lock_timeout' => [ "SET lock_timeout = '50ms'; " . acquire(undef, 'a', 'b', 'c'), '55P03', sub { } ],
	'statement_timeout' => [ "SET statement_timeout = '300ms'; " . acquire(undef, 'a', 'b', 'c'), '57014', sub { } ],
	'cancel' => [ acquire(undef, 'a', 'b', 'c'), '57014', sub { $node_a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $_[0]->pid . ')') } ],
	'terminate' => [ acquire(undef, 'a', 'b', 'c'), '57P01', sub { $node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $_[0]->pid . ')') } ],
	'exit of the client' => [ acquire(undef, 'a', 'b', 'c'), undef, sub { $_[0]->kill_client; $node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $_[0]->pid . ')') } ]);
foreach my $where ('another server', 'the same server')
{
	my $holder = $where eq 'another server' ? $b1 : $a2;
	foreach my $way (sort keys %fail)
	{
		my ($sql, $errcode, $do) = @{ $fail{$way} };
		my $waiter = $node_a->backend;
		$holder->query(lock_one('c'));
		$waiter->send($sql);
		$node_a->wait_until(q{SELECT count(*) = 3 FROM zk_locks WHERE claim IS NOT NULL AND path IN ('/m/a', '/m/b', '/m/c') AND (path = '/m/c' OR granted) AND pid = } . $waiter->pid)
		  unless $way =~ /t(ry|imeout)$/;
		$do->($waiter);
		is($waiter->result->{errcode}, $errcode, "$where has one: $way") if defined $errcode;
		$_->wait_until(q{SELECT NOT EXISTS (SELECT FROM zk_locks WHERE path <> '/m/c')}) foreach values %node;
		$zk->wait_for_children('/zklock/m/c', 1);
		$zk->wait_for_children("/zklock/m/$_", 0) foreach 'a', 'b';
		is($holder->query(held('c')), 't', "$where has one: $way: nothing else is left");
		$holder->query('SELECT zk_lock_release_all()');
		eval { $waiter->quit };
	}
}
is_clean('what did not succeed');

# Another kind of lock, known only in ZooKeeper.
$b1->query("SELECT zk_read_lock_acquire('/m/b')");
$result = $a1->run(acquire('1min', 'a', 'b', 'c'));
is($result->{errcode}, 'ZK003', 'one is another kind of lock at another server');
is($a1->errcode(acquire('0', 'a', 'b', 'c')), 'ZK003', 'the same for a try');
$node_a->wait_until('SELECT NOT EXISTS (SELECT FROM zk_locks)');
is($a1->query('SELECT zk_lock_release_all()'), 0, 'nothing was kept');
$b1->query('SELECT zk_lock_release_all()');
is_clean('another kind');

# --- losses ---

# One of the locks is lost while all are held.
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');
$a1->query(acquire(undef, 'a', 'b', 'c'));
$a1->query(q{BEGIN; SET LOCAL zklock.on_lost = notice; INSERT INTO t VALUES ('x')});
$zk->delete('/zklock/m/b/' . $zk->children('/zklock/m/b')->[0]);
$node_a->wait_until(q{SELECT claim = 'lost' FROM zk_locks WHERE path = '/m/b'});
is($a1->query(held('a')), 't', 'one was lost: the others are held');
$result = $a1->run('COMMIT');
is($result->{errcode}, 'ZK001', 'one was lost: the commit is refused');
like($result->{err}, qr{lock "/m/b" was lost}, 'and says which');
is($a1->errcode(acquire('1min', 'a', 'b', 'c')), 'ZK001', 'nor can it be acquired again with the others');
$result = $a1->run(release('a', 'b', 'c'));
is($result->{out}, 'f', 'release returns false');
like($result->{err}, qr{WARNING:  ZK001: lock "/m/b" was lost}, 'and warns');
is($node_a->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'nothing was written');
is_clean('one was lost');

# The locks that it has are lost while it waits for another: it gets them again.
my %lose = (
	'expired' => sub { $node_a->expire_session($zk, by_hand => 1) },
	'deleted' => sub { $zk->delete('/zklock/m/a/' . $zk->children('/zklock/m/a')->[0]); $node_a->wait_until(q{SELECT claim = 'lost' FROM zk_locks WHERE path = '/m/a'}) });
foreach my $way (sort keys %lose)
{
	$b1->query(lock_one('b'));
	$a1->send(acquire('1min', 'a', 'b', 'c'));
	$node_a->wait_for_ticket('/m/b', 'queued');
	$lose{$way}->();
	$node_a->wait_for_ticket('/m/b', 'queued');
	is($b2->query(lock_one('a', '0')), 't', "$way while it waits: others can have the first");
	$b1->query('SELECT zk_lock_release_all()');
	$node_a->wait_for_ticket('/m/a', 'queued');
	ok(!$a1->is_done, "$way while it waits: then it waits for that");
	$b2->query('SELECT zk_lock_release_all()');
	is($a1->answer, 't', "$way while it waits: and has all of them in the end");
	is($a1->query(held($_)), 't', "$way while it waits: $_ is held") foreach 'a' .. 'c';
	$a1->query('SELECT zk_lock_release_all()');
	is_clean($way);
}

# --- opposite orders, all servers ---

my @six = map { "s$_" } 1 .. 6;
my $counters = PostgreSQL::Test::Utils::tempdir('counters');
my @workers;
foreach my $name (sort keys %node)
{
	my $node = $node{$name};

	# Each path has a counter, which is a file that only the lock protects.
	$node->safe_psql('postgres', q{
		CREATE PROCEDURE work(directory text, rounds int, seed float8) LANGUAGE plpgsql AS $$
		DECLARE
			chosen text[];
			one text;
			value bigint;
		BEGIN
			PERFORM setseed(seed);
			FOR i IN 1 .. rounds LOOP
				SELECT array_agg('/m/s' || n ORDER BY random()) INTO chosen
				FROM (SELECT n FROM generate_series(1, 6) n ORDER BY random() LIMIT 1 + i % 4) AS picked;
				IF i % 5 = 0 THEN
					chosen := chosen[1:1];
					PERFORM zk_lock_acquire(chosen[1]);
				ELSIF i % 7 = 0 THEN
					CONTINUE WHEN NOT zk_multilock_acquire(chosen, CASE WHEN i % 2 = 0 THEN '0' ELSE '2 ms' END::interval);
				ELSE
					PERFORM zk_multilock_acquire(chosen);
				END IF;
				FOREACH one IN ARRAY chosen LOOP
					value := pg_read_file(directory || replace(one, '/m', ''))::bigint;
					EXECUTE format('COPY (SELECT %s) TO %L', value + 1, directory || replace(one, '/m', ''));
					UPDATE done SET n = n + 1 WHERE path = one AND who = pg_backend_pid();
					IF NOT FOUND THEN
						INSERT INTO done VALUES (one, pg_backend_pid(), 1);
					END IF;
				END LOOP;
				COMMIT;
				IF NOT zk_multilock_release(chosen) THEN
					RAISE 'not held: %', chosen;
				END IF;
			END LOOP;
		END $$;
		CREATE TABLE done (path text, who int, n bigint)});
	push @workers, map { $node->backend } 1 .. 4;
}
append_to_file("$counters/$_", "0\n") foreach @six;
my $seed = 0;
$_->send(sprintf q{CALL work('%s', 100, %f)}, $counters, ($seed += 0.05)) foreach @workers;
is($_->result->{err}, '', 'a hundred rounds over six paths, without a deadlock') foreach @workers;
foreach my $name (@six)
{
	my $done = 0;
	$done += $_->safe_psql('postgres', "SELECT sum(n) FROM done WHERE path = '/m/$name'") foreach values %node;
	is(slurp_file("$counters/$name") + 0, $done, "$name: no worker disturbed another");
	cmp_ok($done, '>', 100, "$name: it was used");
}
$_->quit foreach @workers, $a1, $a2, $b1, $b2;
is_clean('in the end');
$_->stop foreach values %node;

done_testing();
