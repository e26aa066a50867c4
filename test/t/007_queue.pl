
# Which backends and clients queue for a lock in the whole cluster, and how to make them go.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min',
	'zklock.tenure' => 0,
	'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $a2, $b1, $b2) = map { $_->backend } $node_a, $node_a, $node_b, $node_b;

# A foreign znode in a lock's directory.
sub queue
{
	my ($path, $name, %opt) = @_;
	return $zk->create("/zklock$path/$name", ephemeral => 1, sequence => 1, %opt) =~ s{^/zklock\Q$path\E/}{}r;
}

my $uuid = '1b4e28ba-2fa1-41d2-883f-0016d3cca427';
my $hex = '8f3d5c1e9a7b4d2f8c6e0a1b3d5f7e9c';

sub rows
{
	my ($path, $columns) = @_;
	return $b2->query("SELECT string_agg(concat_ws(' ', $columns), E'\n' ORDER BY position)"
		  . " FROM zk_lock_queue('$path')");
}

# Segments of shared memory, each of which is a file here.
sub segments { return scalar(() = glob $node_b->data_dir . '/pg_dynshmem/*'); }
my $segments = segments();
sub no_answer_is_left { return $zk->wait_until(sub { segments() == $segments }, 'segments to go'); }

# --- a mutex of two servers and others ---

is($b2->query(q{SELECT count(*) FROM zk_lock_queue('/nobody')}), '0', 'an empty queue');
is($zk->exists('/zklock/nobody'), undef, 'and reading it makes nothing');
$zk->create('/zklock/empty');
is($b2->query(q{SELECT count(*) FROM zk_lock_queue('/empty')}), '0', 'an empty directory');

$a1->query("SET application_name = 'a = 100 % app'");
$a1->query(acquire('/m'));
$b1->send(acquire('/m'));
$node_b->wait_for_ticket('/m', 'queued');
queue('/m', "_c_$uuid-lock-", data => '192.0.2.1');
queue('/m', "${hex}__lock__", data => "worker 7");
queue('/m', 'lock-', data => "\x01\x02");
$zk->create('/zklock/m/no contender');
is(rows('/m', 'position, kind, mode, holds, client, server, pid = ' . $a1->pid . ", database, role, '[' || application || ']', data"),
	join("\n",
		'1 mutex lock t zklock a t postgres ' . $a1->query('SELECT current_user') . ' [a = 100 % app]',
		'2 mutex lock f zklock b f postgres ' . $a1->query('SELECT current_user') . ' [007_queue.pl]',
		'3 mutex lock f curator 192.0.2.1',
		'4 mutex lock f kazoo worker 7',
		'5 mutex lock f unknown'),
	'a mutex: the holder and the waiters, in order');
is($b2->query(q{SELECT string_agg(znode, ' ' ORDER BY znode COLLATE "C") FROM zk_lock_queue('/m')}),
	join(' ', grep { $_ ne 'no contender' } @{ $zk->children('/zklock/m') }), 'the znodes are those');
is($b2->query(q{SELECT znode FROM zk_lock_queue('/m') WHERE holds}),
	$node_a->safe_psql('postgres', q{SELECT znode FROM zk_locks WHERE path = '/m'}), 'as zk_locks says it');
is($b2->query(q{SELECT bool_and(since BETWEEN now() - interval '10 min' AND now() + interval '1 min') FROM zk_lock_queue('/m')}),
	't', 'since when');
$zk->close;
$a1->query(release('/m'));
is($b1->answer, 't', 'handed on');
is(rows('/m', 'position, holds, server'), '1 t b', 'and seen at once');
$b1->query(release('/m'));

# Nothing that a client writes reaches the terminal or the log unchanged.
{
	my $evil = "ev%1B]0;x%07%0AERROR%7F%C2%9B\x1b[31m%FFil";
	my $shown = 'ev\x1b]0;x\x07\x0aERROR\x7f\xc2\x9b\x1b[31m\xffil';
	$a1->query(acquire('/evil'));
	my ($name) = $zk->children('/zklock/evil')->[0] =~ /^(.*?)\d+$/;
	$a1->query(release('/evil'));
	$node_a->wait_until_clean('/evil');
	queue('/evil', $name, data => "server=$evil pid=77 database=$evil role=$evil application=$evil");
	is(rows('/evil', 'server, pid, database, role, application'), "$shown 77 $shown $shown $shown", 'control characters are escaped in a view');
	$b2->query(q{SET lock_timeout = '1s'});
	my $result = $b2->run(acquire('/evil'));
	$b2->query('RESET lock_timeout');
	like($result->{err}, qr/DETAIL:  Process 77 on server "\Q$shown\E" holds the lock\./, 'and in a message');
	queue('/evil', "_c_$uuid-lock-", data => "a\xc2\x9bb");
	is($b2->query(q{SELECT data IS NULL FROM zk_lock_queue('/evil') WHERE client = 'curator'}), 't', 'data with such characters are not shown');
	unlike(slurp_file($node_b->logfile), qr/[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|^ERROR/m, 'and in the log');
}

# A client that hides its data.
queue('/hidden', "_c_$uuid-lock-", client => 'other');
$zk->create("/zklock/hidden/_c_$uuid-lock-", ephemeral => 1, sequence => 1, perms => 'cdwa', data => 'secret');
is(rows('/hidden', 'holds, client, data'), "t curator \nf curator", 'data that may not be read');

# ZooKeeper 3.9.2 and later hide the times of such a znode as well (ZOOKEEPER-2590).
my ($hidden) = grep { /1$/ } @{ $zk->children('/zklock/hidden') };
my $times = eval { $zk->exists("/zklock/hidden/$hidden") } ? 't' : 'f';
is(rows('/hidden', 'since IS NOT NULL'), "t\n$times", 'since when, as far as it may be seen');
$zk->create('/zklock/no_read', perms => 'cdwa');
is($b2->errcode(q{SELECT * FROM zk_lock_queue('/no_read')}), '28000', 'a directory that may not be read');
is($b2->query(q{SELECT count(*), count(position), count(holds) FROM zk_lock_queue_or_null('/no_read')}), '1|0|0', 'zk_lock_queue_or_null: a row of nulls');
is($b2->query(q{SELECT count(*) FROM zk_lock_queue_or_null('/nothing')}), '0', 'zk_lock_queue_or_null: none for an empty queue');
is($b2->query(q{SELECT string_agg(q::text, ' ' ORDER BY position) FROM zk_lock_queue_or_null('/hidden') AS q}),
	$b2->query(q{SELECT string_agg(q::text, ' ' ORDER BY position) FROM zk_lock_queue('/hidden') AS q}), 'zk_lock_queue_or_null: else the queue');

# --- readers and writers ---

queue('/rw', "_c_$uuid-__READ__");
queue('/rw', "${hex}__rlock__");
queue('/rw', "_c_$uuid-__WRIT__");
queue('/rw', "_c_$uuid-__READ__");
queue('/rw', "${hex}__lock__");
is(rows('/rw', 'position, kind, mode, holds, client'),
	join("\n", '1 read-write read t curator', '2 read-write read t kazoo', '3 read-write write f curator',
		'4 read-write read f curator', '5 read-write write f kazoo'), 'a read-write lock');

# --- semaphores ---

$zk->create('/zklock/sem', data => '2');
queue('/sem/leases', "_c_$uuid-lease-", client => 'one');
queue('/sem/leases', "_c_$uuid-lease-", client => 'two');
is(rows('/sem', 'position, kind, mode, holds'), "1 semaphore lease t\n2 semaphore lease t", 'leases');
queue('/sem/locks', "_c_$uuid-lock-", client => 'three');
queue('/sem/leases', "_c_$uuid-lease-", client => 'three', data => '192.0.2.3');
queue('/sem/locks', "_c_$uuid-lock-", client => 'four');
is(rows('/sem', "position, kind, mode, holds, client, split_part(znode, '/', 1)"),
	join("\n", (map { "$_ semaphore lease t curator leases" } 1, 2), '3 semaphore lease f curator leases',
		map { "$_ semaphore acquiring f curator locks" } 4, 5), 'the waiter for a lease');
$zk->close('one');
is(rows('/sem', 'position, mode, holds'), "1 lease t\n2 lease t\n3 acquiring f\n4 acquiring f", 'and gets it');

queue('/unsaid/leases', "_c_$uuid-lease-", client => 'two');
queue('/unsaid/locks', "_c_$uuid-lock-", client => 'three');
queue('/unsaid/leases', "_c_$uuid-lease-", client => 'three');
is(rows('/unsaid', 'position, mode, holds'), "1 lease t\n2 lease f\n3 acquiring f",
	'without a limit, the client that acquires waits');

# Another lock inside of a lock's directory does not belong to its queue.
queue('/outer', "_c_$uuid-lock-");
queue('/outer/leases', "_c_$uuid-lock-", data => 'inner');
is(rows('/outer', 'position, kind, mode, holds'), '1 mutex lock t', 'a lock of the name "leases" is no lease');
is($b2->query(q{SELECT zk_lock_force_release('/outer')}), '1', 'and not taken away with the other');
is(rows('/outer/leases', 'holds, data'), 't inner', 'it is still held');

# --- many ---

queue('/many', "_c_$uuid-lock-", data => 'x' x 100) foreach 1 .. 2000;
is($b2->query(q{SELECT count(*), count(*) FILTER (WHERE holds), max(position), bool_and(length(data) = 100) FROM zk_lock_queue('/many')}),
	'2000|1|2000|t', '2,000 in the queue');
is($b2->query(q{SELECT count(*) FROM generate_series(1, 20), zk_lock_queue('/many')}), '40000', 'again and again');
my @surveyors = map { $node_b->backend } 1 .. 24;
$_->send(q{SELECT count(*) FROM zk_lock_queue('/many')}) foreach @surveyors;
is(join(' ', map { $_->answer } @surveyors), join(' ', (2000) x 24), 'by more backends at a time than there are slots');
ok(no_answer_is_left(), 'and no answer is left in shared memory');

# --- revocation ---

is($b2->query(q{SELECT zk_lock_revoke('/nobody')}), '0', 'no holder that could be asked');
my $holder = queue('/ask', "_c_$uuid-lock-");
my $waiter = queue('/ask', "_c_$uuid-lock-");
is($b2->query(q{SELECT zk_lock_revoke('/ask')}), '1', 'the holder is asked');
is($zk->get("/zklock/ask/$holder")->{data}, '__REVOKE__', 'its znode says so');
is($zk->get("/zklock/ask/$waiter")->{data}, '', 'that of a waiter does not');
is($b2->query(q{SELECT zk_lock_revoke('/sem'), zk_lock_revoke('/rw')}), '2|2', 'all holders are asked');
is(join(' ', map { $zk->get("/zklock/sem/leases/$_")->{data} } @{ $zk->children('/zklock/sem/leases') }),
	'__REVOKE__ __REVOKE__', 'the leases too');
$a1->query(acquire('/ask/ours'));
is($b2->query(q{SELECT zk_lock_revoke('/ask/ours')}), '1', 'a claim of another server');
is($a1->query(q{SELECT zk_lock_is_held('/ask/ours')}), 't', 'which is not lost by that');
$a1->query(release('/ask/ours'));

# Which functions tell the holder that its release is requested: those that depend on the session's
# own locks.
foreach ([ 0, 'SELECT count(*) FROM zk_locks, zk_status, zk_sessions' ],
	[ 0, q{SELECT count(*) FROM zk_lock_queue('/told')} ],
	[ 0, q{SELECT zk_lock_revoke('/told'), zk_lock_force_release('/nobody')} ],
	[ 0, q{SELECT zk_fence('told', 1)} ],
	map { [ 1, "SELECT $_" ] } q{zk_lock_is_held('/x')}, q{zk_lock_is_revoked('/told')}, q{zk_lock_token('/told')},
	q{zk_lock_remaining('/told')}, q{zk_lock_acquire('/x')}, q{zk_xact_read_lock_acquire('/y')},
	q{zk_semaphore_acquire('/z', 1)}, q{zk_multilock_acquire('{/x}')}, q{zk_lock_release('/told')},
	q{zk_semaphore_release('/z')}, 'zk_lock_release_all()')
{
	my ($tells, $sql) = @$_;
	$a1->query(acquire('/told'));
	$b2->query(q{SELECT zk_lock_revoke('/told')});
	$node_a->wait_until(q{SELECT bool_or(revoked) FROM zk_locks WHERE path = '/told'});
	is($a1->run($sql)->{err} =~ /NOTICE:  00000: release of lock "\/told" has been requested/ ? 1 : 0, $tells, "a notice at $sql");
	$a1->query('SELECT zk_lock_release_all()');
	$node_a->wait_until_clean('/told');
}

# --- by force ---

$a1->query('CREATE TABLE written (t text)');
$a1->query("BEGIN; SET LOCAL zklock.on_lost = notice; SELECT zk_xact_lock_acquire('/force'); INSERT INTO written VALUES ('x')");
$b1->send(acquire('/force'));
$node_b->wait_for_ticket('/force', 'queued');
is($b2->query(q{SELECT zk_lock_force_release('/force')}), '1', 'one holder');
is($b1->answer, 't', 'the waiter gets the lock');
$node_a->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/force'});
is($a1->errcode('COMMIT'), 'ZK001', 'the holder whose lock was taken away cannot commit');
is($a1->query('SELECT count(*) FROM written'), '0', 'nothing was written');
like(slurp_file($node_b->logfile),
	qr/LOG:  role "\w+" releases lock "\/force" by force\n.*DETAIL:  It deletes the znode "_c_[^"]+-lock-\d+"\./,
	'it is in the server log');
$b1->query(release('/force'));
is($b2->query(q{SELECT zk_lock_force_release('/force')}), '0', 'no client holds it');
is($b2->query(q{SELECT zk_lock_force_release('/rw')}), '2', 'both readers');
is(rows('/rw', 'mode, holds'), "write t\nread f\nwrite f", 'then the writer has it');
is($b2->query(q{SELECT zk_lock_force_release('/sem')}), '2', 'all leases');
is(rows('/sem', 'mode, holds'), "acquiring f\nacquiring f", 'but not from the client that is acquiring one');

# Once the lock is taken away, nothing that relies on it succeeds on the holder's own server.
my $node_c = ZklockNode->started('c', $zk, %settings, 'zklock.on_lost' => 'notice');
my ($c1, $c2) = map { $node_c->backend } 1, 2;
my %late;
foreach my $round (1 .. 20)
{
	foreach my $function ('zk_lock', 'zk_read_lock', 'zk_semaphore')
	{
		my $path = "/own/$function/$round";
		my $more = $function eq 'zk_semaphore' ? ', 1' : '';
		$c1->query("BEGIN; CREATE TEMP TABLE t$round$function (); SELECT ${function}_acquire('$path'$more)");

		# The holder's backend checks in the same message.
		$late{'is held'}++ if $c1->query("SELECT zk_lock_force_release('$path')\\; SELECT zk_lock_is_held('$path')") ne "1\nf";
		$late{'commits'}++ if $c1->errcode('COMMIT') ne 'ZK001';
		$c1->query("SELECT ${function}_release('$path')");

		$c1->query("BEGIN; CREATE TEMP TABLE u$round$function (); SELECT ${function}_acquire('$path'$more)");
		$late{'not taken'}++ if $c2->query("SELECT zk_lock_force_release('$path')") ne '1';
		$late{'commits after another backend has taken it'}++ if $c1->errcode('COMMIT') ne 'ZK001';
		$c1->query("SELECT ${function}_release('$path')");
	}
}
is_deeply(\%late, {}, 'by force on its own server: the holder does not commit after that');
is($c1->query(acquire('/own/zk_lock/1')), 't', 'and may acquire the lock again');
$node_c->stop;

$b2->query('CREATE ROLE plain; CREATE ROLE signaller; GRANT pg_signal_backend TO signaller; SET ROLE plain');
is($b2->errcode(q{SELECT zk_lock_force_release('/many')}), '42501', 'a plain role may not');
is($b2->query(q{SELECT count(*) FROM zk_lock_queue('/ask')}), '2', 'but may look');
is($b2->errcode(q{SELECT zk_lock_revoke('/ask')}), '42501', 'a plain role may not even request a release');
$b2->query('SET ROLE signaller');
is($b2->query(q{SELECT zk_lock_revoke('/ask')}), '1', 'a role that may end sessions may request a release');
is($b2->errcode(q{SELECT zk_lock_force_release('/many')}), '42501', 'but takes no lock from a holder that does not say which role it has');
$b2->query('RESET ROLE');
is($b2->query(q{SELECT zk_lock_force_release('/many')}), '1', 'a superuser may');

# As with pg_terminate_backend(), members of pg_signal_backend take no lock from a superuser.
$node_a->safe_psql('postgres', 'CREATE ROLE plain LOGIN; CREATE ROLE boss LOGIN SUPERUSER; GRANT plain TO boss');
my ($plain, $plain2, $boss, $boss2) =
  map { my $role = $_; $node_a->backend(extra_params => [ '-U', $role ]) } 'plain', 'plain', 'boss', 'boss';
sub word_of { my ($path) = @_; return join ' ', map { $zk->get("/zklock$path/$_")->{data} =~ / (superuser=\S+)/ ? $1 : '-' } @{ $zk->children("/zklock$path") }; }
sub force
{
	my ($path) = @_;
	$b2->query('SET ROLE signaller');
	my $forced = $b2->run("SELECT zk_lock_force_release('$path')");
	$b2->query('RESET ROLE');
	return $forced->{errcode} || $forced->{out};
}

foreach my $call ([ 'mutex', 'zk_lock', 1 ], [ 'writer', 'zk_write_lock', 1 ], [ 'reader', 'zk_read_lock', '42501' ])
{
	my ($kind, $function, $may) = @$call;
	my $path = "/taken/$kind";
	$_->query('SET zklock.on_lost = notice') foreach $plain, $boss;
	$plain->query("SELECT ${function}_acquire('$path')");
	is(word_of($path), $may eq '1' ? 'superuser=f' : '-', "$kind: what the znode of a plain role says");
	is(force($path), $may, "$kind: taken from a plain role");
	$plain->run("SELECT ${function}_release('$path')");
	$node_a->wait_until_clean($path);

	$boss->query("SELECT ${function}_acquire('$path')");
	is(word_of($path), '-', "$kind: what the znode of a superuser says");
	is(force($path), '42501', "$kind: not taken from a superuser");
	is($boss->query("SELECT zk_lock_is_held('$path')"), 't', "$kind: the superuser still holds it");
	$boss->query("SELECT ${function}_release('$path')");
	$node_a->wait_until_clean($path);

	$boss->query("SET ROLE plain; SELECT ${function}_acquire('$path'); RESET ROLE");
	is(force($path), '42501', "$kind: not taken from a superuser that has set another role, either");
	$boss->query("SELECT ${function}_release('$path')");
	$node_a->wait_until_clean($path);
}

# A superuser's transaction may use any claim, so no other role takes one away; also if the claim got its
# lock after a backend of a plain role, whose znode says something else.
foreach my $before ('nothing', 'a lock of a plain role')
{
	$plain->query(acquire('/taken/claim')) if $before ne 'nothing';
	my $claim = $plain2->query(q{SELECT zk_claim_request('/taken/claim', '10 min')});
	$plain->query(release('/taken/claim')) if $before ne 'nothing';
	is($plain2->query("SELECT zk_claim_wait('$claim', '1 min')"), 't', "after $before: a claim of a plain role");
	is(word_of('/taken/claim'), '-', '... what its znode says');
	$boss->query("BEGIN; SELECT zk_xact_claim_use('$claim'); CREATE TABLE IF NOT EXISTS used ()");
	is(force('/taken/claim'), '42501', '... not taken from a superuser that uses it');
	is($boss->errcode('COMMIT'), '', '... whose transaction commits');
	$plain2->query("SELECT zk_claim_release('$claim')");
	$node_a->wait_until_clean('/taken/claim');
}

# Handed on within the server: the plain role's ticket does not serve the superuser.
my $znodes = sub { return join ' ', sort @{ $zk->children('/zklock/on') } };
$plain->query(q{SELECT zk_lock_acquire('/on')});
$boss->send(q{SELECT zk_lock_acquire('/on')});
$node_a->wait_for_waiter('/on', 1);
my $before = $znodes->();
$plain->query(release('/on'));
is($boss->answer, 't', 'handed on to a superuser');
isnt($znodes->(), $before, 'with a new ticket');
is(force('/on'), '42501', 'which is not taken');
$plain->send(q{SELECT zk_lock_acquire('/on')});
$node_a->wait_for_waiter('/on', 1);
$before = $znodes->();
$boss->query(release('/on'));
is($plain->answer, 't', 'handed on to a plain role');
is($znodes->(), $before, 'with the same ticket');
is(force('/on'), '42501', 'which is not taken either');
$plain->query(release('/on'));

# Readers share a ticket, whatever their roles are.  A writer of a plain role becomes a reader
# beside one.
$plain->query(q{SELECT zk_write_lock_acquire('/down'), zk_read_lock_acquire('/down')});
is(word_of('/down'), 'superuser=f', 'a writer');
$boss->send(q{SELECT zk_read_lock_acquire('/down')});
$node_a->wait_for_waiter('/down', 1);
$plain->query(q{SELECT zk_write_lock_release('/down')});
is($boss->answer, 't', 'a superuser reads beside the former writer');
is(word_of('/down'), '-', 'whose znode does not speak of roles any more');
is(force('/down'), '42501', 'and is not taken');
is($plain2->query(q{SELECT zk_read_lock_acquire('/down', '0')}), 't', 'another reader');
is($boss2->query(q{SELECT zk_read_lock_acquire('/down', '0')}), 't', 'and another');
$_->query('SELECT zk_lock_release_all()') foreach $plain, $plain2, $boss, $boss2;

# A ticket that has answered a try keeps the answer.  The znode of the try may still be there.
$plain->query(q{SELECT zk_lock_acquire('/tried')});
my $tried = '/zklock/tried/' . $zk->children('/zklock/tried')->[0];
is($b2->query(q{SELECT zk_lock_acquire('/tried', '0')}), 'f', 'a try');
$zk->wait_until(sub { $zk->get($tried)->{data} =~ / superuser=f in_use=t$/ }, 'the answer');
is(force('/tried'), '1', 'taken from a plain role that has answered a try');
$_->quit foreach $plain, $plain2, $boss, $boss2;

# --- ZooKeeper is silent ---

# The cancelled commands must leave nothing behind, neither before nor after ZooKeeper is back.
$zk->pause;
$b2->query("SET zklock.connection_timeout = '300ms'");
my $result = $b2->run(q{SELECT * FROM zk_lock_queue('/ask')});
is($result->{errcode}, '08006', 'ZooKeeper is silent');
like($result->{err}, qr/could not access lock "\/ask": ZooKeeper cannot be reached/, 'message');
cmp_ok($result->{seconds}, '<', 20, 'within the bound');
is($b2->errcode(q{SELECT zk_lock_revoke('/ask')}), '08006', 'revoke');
is($b2->errcode(q{SELECT zk_lock_force_release('/ask')}), '08006', 'release by force');
$b2->query("SET zklock.connection_timeout = '2min'; SET statement_timeout = '20ms'");
is(join(' ', map { $b2->errcode(q{SELECT * FROM zk_lock_queue('/ask')}) } 1 .. 40), join(' ', ('57014') x 40),
	'cancelled again and again');
$_->send(q{SELECT count(*) FROM zk_lock_queue('/ask')}) foreach @surveyors;
$node_b->wait_until(q{SELECT count(*) >= 24 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND backend_type = 'client backend'});

# In one statement: on a slow machine the connection would be lost meanwhile, and the look at the queue would fail.
$node_b->safe_psql('postgres', sprintf q{SELECT pg_terminate_backend(pid) FROM unnest('{%s}'::int[]) AS pid}, join ',', map { $_->pid } @surveyors[0 .. 11]);
$zk->resume;
is(join(' ', map { $_->answer } @surveyors[12 .. 23]), join(' ', (2) x 12),
	'the waiters that went on, more than there are slots left, have their answers');
$b2->query("SET statement_timeout = 0");
is(join(' ', map { $b2->query(q{SELECT count(*) FROM zk_lock_queue('/ask')}) } 1 .. 40), join(' ', (2) x 40),
	'all slots are free again');

# --- the worker ends meanwhile ---

my $worker = $node_b->worker_pid;
$zk->pause;
$b1->send(q{SELECT count(*) FROM zk_lock_queue('/many')});
$node_b->wait_until('SELECT wait_event_type = \'Extension\' FROM pg_stat_activity WHERE pid = ' . $b1->pid);
$b2->query("SELECT pg_terminate_backend($worker)");
$node_b->wait_until("SELECT worker_pid <> $worker FROM zk_status");
$zk->resume;
is($b1->answer, '1999', 'the next worker answers');
for my $round (1 .. 5)
{
	$worker = $node_b->worker_pid;
	$b1->send(q{SELECT count(*) FROM zk_lock_queue('/many')});
	$b2->query("SELECT pg_terminate_backend($worker)");
	$node_b->wait_until("SELECT worker_pid <> $worker FROM zk_status");
	is($b1->answer, '1999', "ended while it works, $round");
}

# Cancelled at any moment, also while the answer is on its way.
my $busy = 0;
foreach my $ms (1 .. 60)
{
	$b2->query("SET statement_timeout = '${ms}ms'");
	$busy++ if $b2->errcode(q{SELECT count(*) FROM zk_lock_queue('/many')}) eq '57014';
}
$b2->query('SET statement_timeout = 0');
cmp_ok($busy, '>', 0, "cancelled at any moment, $busy times");
is($b2->query(q{SELECT count(*) FROM zk_lock_queue('/many')}), '1999', 'then asked once more');
ok(no_answer_is_left(), 'no answer is left in shared memory');

done_testing();
