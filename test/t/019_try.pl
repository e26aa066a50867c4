
# A try is not told "held" because of a ticket that only lingers on another server: the try asks the
# holder, and the holder gives the ticket up or says that it is in use.

use strict;
use warnings;

use Time::HiRes qw(time);

use InteropPeer;
use ZklockTest qw(!acquire !try !release);

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.tenure' => 0, 'zklock.linger' => '1h');
my ($node_a, $node_b, $node_c) = map { ZklockNode->started($_, $zk, %settings) } qw(a b c);
my ($a1, $a2, $b1, $b2, $c1) = map { $_->backend } $node_a, $node_a, $node_b, $node_b, $node_c;

my %lock = (
	mutex => [ 'zk_lock_acquire', 'zk_lock_release' ],
	read => [ 'zk_read_lock_acquire', 'zk_read_lock_release' ],
	write => [ 'zk_write_lock_acquire', 'zk_write_lock_release' ]);

sub acquire { my ($kind, $path) = @_; return "SELECT $lock{$kind}[0]('$path')"; }
sub try { my ($kind, $path) = @_; return "SELECT $lock{$kind}[0]('$path', '0')"; }
sub release { my ($kind, $path) = @_; return "SELECT $lock{$kind}[1]('$path')"; }

# A lock that comes back, so that its ticket lingers.
sub let_linger
{
	my ($node, $backend, $kind, $path) = @_;
	$backend->query($_) foreach (acquire($kind, $path), release($kind, $path)) x 2;
	$node->wait_for_ticket($path, 'lingering');
	return;
}

# The data of a lock's znodes.
sub data_of
{
	my ($path) = @_;
	return map { $zk->get("/zklock$path/$_")->{data} } @{ $zk->children("/zklock$path") };
}

# --- a ticket that lingers is given up, whatever it is and whatever is wanted ---

foreach (
	[qw(mutex mutex)], [qw(write write)], [qw(write read)], [qw(read write)],
	[qw(mutex write)], [qw(mutex read)], [qw(write mutex)], [qw(read mutex)])
{
	my ($first, $second) = @$_;
	my $path = "/lingers/${first}_$second";
	let_linger($node_a, $a1, $first, $path);
	is($b1->query(try($second, $path)), 't', "a $first ticket lingers: $second, tried once");
	$node_a->wait_until_clean($path);
	is(scalar @{ $zk->children("/zklock$path") }, 1, "a $first ticket lingers: it is gone");
	$b1->query(release($second, $path));
}

# Readers need not ask one another.
let_linger($node_a, $a1, 'read', '/readers');
is($b1->query(try('read', '/readers')), 't', 'a read ticket lingers: read');
is(scalar @{ $zk->children('/zklock/readers') }, 2, 'a read ticket lingers: it stays');
$b1->query(release('read', '/readers'));

# A waiter for another kind of lock asks as well: a lingering ticket stands in no client's way.
let_linger($node_a, $a1, 'mutex', '/kinds');
is($b1->query(acquire('write', '/kinds')), 't', 'a wait for another kind of lock');
is($a1->errcode(try('mutex', '/kinds')), 'ZK003', 'is answered if that is in use');
is($a1->errcode(acquire('mutex', '/kinds')), 'ZK003', 'and so is a wait');
$b1->query(release('write', '/kinds'));

# --- a ticket that is held says so ---

# Curator's layout, and what zk_lock_queue shows, stay the same.
$a1->query(acquire('mutex', '/held'));
my ($before) = data_of('/held');
my $requests = $node_a->status('requests');
is($b1->query(try('mutex', '/held')), 'f', 'held: a try fails');
cmp_ok($node_a->status('requests') - $requests, '<=', 5, 'held: the holder lists (perhaps twice), writes, and watches its znode (perhaps it did)');
$zk->wait_for_children('/zklock/held', 1);
is_deeply([ data_of('/held') ], ["$before in_use=t"], 'held: the znode says so');
is($c1->query("SELECT znode IS NOT NULL, holds, client, server, pid, application FROM zk_lock_queue('/held')"),
	join('|', 't', 't', 'zklock', 'a', $a1->pid, $a1->query('SHOW application_name')), 'held: and names the holder, as before');
my $result = $a1->run(q{SELECT zk_lock_is_revoked('/held')});
is("$result->{out}$result->{err}", 'f', 'held: no release was requested');

# Once the ticket has answered, its server has no more to do with tries.
$requests = $node_a->status('requests');
foreach my $i (1 .. 20)
{
	is($_->query(try('mutex', '/held')), 'f', "held: try $i again") foreach $b1, $c1;
}
# (One request may be left over from before.)
cmp_ok($node_a->status('requests') - $requests, '<=', 1, 'held: the holder is not troubled by any of them');
$zk->wait_for_children('/zklock/held', 1);

# The answer stays true: the ticket does not linger any more.
$a1->query(release('mutex', '/held'));
$zk->wait_for_children('/zklock/held', 0);
$node_a->wait_until_clean('/held');
pass('held: a ticket that has answered does not linger');
is($c1->query(try('mutex', '/held')), 't', 'held: afterwards it is free');
$c1->query(release('mutex', '/held'));

# A ticket that is uncontended again has still answered.
$a1->query($_) foreach acquire('read', '/joined'), release('read', '/joined'), acquire('read', '/joined');
is($b1->query(try('write', '/joined')), 'f', 'answered: readers hold it');
$zk->wait_for_children('/zklock/joined', 1);
is($a2->query(acquire('read', '/joined')), 't', 'answered: another reader joins, for no client waits');
$node_a->wait_until(q{SELECT NOT bool_or(contended) FROM zk_locks WHERE path = '/joined'});
$_->query(release('read', '/joined')) foreach $a1, $a2;
$zk->wait_for_children('/zklock/joined', 0);
pass('answered: it does not linger');

# While others wait, the holder writes the answer before any try comes.
$a1->query(acquire('mutex', '/waited'));
$b1->send(acquire('mutex', '/waited'));
$zk->wait_until(sub { grep { / in_use=t$/ } data_of('/waited') }, 'the answer');
is($c1->query(try('mutex', '/waited')), 'f', 'others wait: a try fails');
is($b2->query(try('mutex', '/waited')), 'f', 'others wait: in their server, too');
$a1->query(release('mutex', '/waited'));
is($b1->answer, 't', 'others wait: they get it');
$b1->query(release('mutex', '/waited'));

# Clients that cannot answer are not asked.
my $foreign = $zk->create('/zklock/foreign/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-',
	ephemeral => 1, sequence => 1);
is($b1->query(try('mutex', '/foreign')), 'f', 'Curator holds it');
is($b1->errcode(try('write', '/foreign')), 'ZK003', 'Curator holds another kind of lock');
$zk->delete($foreign);

# --- revocation ---

$a1->query(acquire('mutex', '/revoked'));
is($b1->query(q{SELECT zk_lock_revoke('/revoked')}), '1', 'asked to release it first');
is($b1->query(try('mutex', '/revoked')), 'f', 'asked to release it first: then a try');
$node_a->wait_until(q{SELECT bool_and(revoked) FROM zk_locks WHERE path = '/revoked'});
is($a1->query(q{SELECT zk_lock_is_revoked('/revoked')}), 't', 'asked to release it first: the answer did not hide that');
$zk->wait_until(sub { grep { / in_use=t$/ } data_of('/revoked') }, 'the answer');
is($b1->query(try('mutex', '/revoked')), 'f', 'asked to release it first: another try');
$a1->query(release('mutex', '/revoked'));

$a1->query(acquire('mutex', '/revoked2'));
is($b1->query(try('mutex', '/revoked2')), 'f', 'asked to release it afterwards: a try');
is($b1->query(q{SELECT zk_lock_revoke('/revoked2')}), '1', 'asked to release it afterwards');
$node_a->wait_until(q{SELECT bool_and(revoked) FROM zk_locks WHERE path = '/revoked2'});
pass('asked to release it afterwards: the holder learns it');
is($b1->query(try('mutex', '/revoked2')), 'f', 'asked to release it afterwards: another try');
$a1->query(release('mutex', '/revoked2'));

# --- a ticket that writes serves only readers ---

foreach my $second (qw(read write))
{
	my $path = "/serves_$second";
	$a1->query($_) foreach acquire('write', $path), acquire('read', $path), release('write', $path);
	$a1->query($_) foreach release('read', $path), acquire('write', $path), release('write', $path);
	$node_a->wait_for_ticket($path, 'lingering');
	$a1->query(acquire('read', $path));
	like($zk->children("/zklock$path")->[0], qr/__WRIT__/, "a ticket that writes serves a reader: $second");
	is($b1->query(try($second, $path)), $second eq 'read' ? 't' : 'f', "a ticket that writes serves a reader: $second, tried once");
	$zk->wait_for_children("/zklock$path", sub { grep { /__READ__/ } @{ $_[0] } });
	pass("a ticket that writes serves a reader: now it reads");
	is($c1->query(try('write', $path)), 'f', 'a writer is told that it is held');
	$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;
	$node_a->wait_until_clean($path);
}

# --- several tries at a time ---

foreach my $i (1 .. 10)
{
	my $path = "/several$i";
	let_linger($node_a, $a1, 'mutex', $path);
	$_->send(try('mutex', $path)) foreach $b1, $c1;
	my @won = grep { $_->answer eq 't' } $b1, $c1;
	is(scalar @won, 1, "several try a lock that lingers: one has it ($i)");
	$_->query(release('mutex', $path)) foreach @won;
}

foreach my $i (1 .. 5)
{
	my $path = "/several_held$i";
	$a1->query(acquire('mutex', $path));
	$_->send(try('mutex', $path)) foreach $b1, $c1;
	is(join(' ', map { $_->answer } $b1, $c1), 'f f', "several try a lock that is held ($i)");
	$a1->query(release('mutex', $path));
}

# Each of several paths is asked for.
let_linger($node_a, $a1, 'mutex', $_) foreach '/multi1', '/multi2';
let_linger($node_c, $c1, 'mutex', '/multi3');
is($b1->query(q{SELECT zk_multilock_acquire('{/multi1, /multi2, /multi3}', '0')}), 't', 'several locks that linger, tried at once');
$b1->query(q{SELECT zk_multilock_release('{/multi1, /multi2, /multi3}')});

# --- no answer comes ---

let_linger($node_a, $a1, 'mutex', '/silent');
my $worker = $node_a->worker_pid;
kill 'STOP', $worker;
is($b1->query(try('mutex', '/silent')), 'f', 'the other server stands still: a try does not wait for it for ever');
$zk->wait_for_children('/zklock/silent', 1);
$b1->query(q{SET statement_timeout = '100ms'});
is($b1->errcode(try('mutex', '/silent')), '57014', 'the other server stands still: a try is cancelled');
$b1->query('RESET statement_timeout');
$zk->wait_for_children('/zklock/silent', 1);
$b1->query(q{SET lock_timeout = '100ms'});
my $tried;
foreach (1 .. 5)						# a try ends after a second, and that may come first
{
	$tried = $b1->run(try('mutex', '/silent'));
	last if $tried->{errcode} || $tried->{seconds} < 1;
}
is($tried->{errcode}, '55P03', 'the other server stands still: lock_timeout');
$b1->query('RESET lock_timeout');
$zk->wait_for_children('/zklock/silent', 1);

# The try's own request was held up for a while.  The try must not pay for that several times.
my $own_worker = $node_b->worker_pid;
kill 'STOP', $own_worker;
$b1->query(q{SET zklock.connection_timeout = '1s'});
my $sent_at = time;
$b1->send(try('mutex', '/silent'));
$zk->wait_until(sub { time > $sent_at + 1 }, 'a second to pass');
kill 'CONT', $own_worker;
my $held_up = time - $sent_at;
$result = $b1->result;
is($result->{out}, 'f', 'the own request was held up: a try does not wait for the other server for ever');
cmp_ok($result->{seconds}, '<', 4 * $held_up, 'the own request was held up: for no longer than zklock.connection_timeout');
$b1->query('RESET zklock.connection_timeout');
$zk->wait_for_children('/zklock/silent', 1);

kill 'CONT', $worker;
is($b1->query(try('mutex', '/silent')), 't', 'the other server goes on: a try has it');
$b1->query(release('mutex', '/silent'));

# The holder's worker ends meanwhile, and the next worker has to answer.
$a1->query(acquire('mutex', '/restarted'));
kill 'STOP', $node_a->worker_pid;
$b1->send(try('mutex', '/restarted'));
$zk->wait_for_children('/zklock/restarted', 2);
kill 'TERM', $worker = $node_a->worker_pid;
kill 'CONT', $worker;
is($b1->answer, 'f', 'the worker of the holder is another one: a try fails');
$node_a->wait_until_connected;
is($b1->query(try('mutex', '/restarted')), 'f', 'the worker of the holder is another one: and again');
$zk->wait_until(sub { grep { / in_use=t$/ } data_of('/restarted') }, 'the answer');
$a1->query(release('mutex', '/restarted'));
$node_a->wait_until_clean('/restarted');
is($b1->query(try('mutex', '/restarted')), 't', 'the worker of the holder is another one: released');
$b1->query(release('mutex', '/restarted'));

# --- leases are not asked for an answer, only given a moment ---

my $lease = q{zk_semaphore_acquire('/leases', 2, '0', 2)};
$a1->query($_) foreach ("SELECT $lease", q{SELECT zk_semaphore_release('/leases', 2)}) x 2;
is(scalar @{ $zk->children('/zklock/leases/leases') }, 2, 'leases linger');
$b1->wait_until("SELECT $lease");
is($c1->query("SELECT $lease"), 'f', 'leases that linger are given up, those that are held are not');

# --- Curator neither asks nor answers ---

my $curator = InteropPeer->curator($zk)->actor('curator');
is($curator->query('acquire mutex /zklock/curator'), 't', 'Curator holds a lock');
is($b1->query(try('mutex', '/curator')), 'f', 'it is not asked: a try fails');
is($b1->errcode(try('read', '/curator')), 'ZK003', 'nor as another kind of lock');
$curator->query('release mutex /zklock/curator');
let_linger($node_a, $a1, 'mutex', '/curator');
$zk->wait_until(sub { $curator->query('acquire mutex /zklock/curator 0') eq 't' }, 'a try of Curator');
pass('a try of Curator, or the next one, has a lock that lingers');
$curator->query('release mutex /zklock/curator');

is($_->status('connects'), '1', 'no connection was broken') foreach $node_b, $node_c;
is($_->status('tickets_lost'), '0', 'no ticket was lost') foreach $node_a, $node_b, $node_c;
$_->quit foreach $a1, $a2, $b1, $b2, $c1;
$_->stop foreach $node_a, $node_b, $node_c;
is_deeply([ grep { /lock-|__READ__|__WRIT__|lease-/ } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
