
# An ensemble of three: servers of it die, all of it dies, all of it falls silent.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new(servers => 3);
my @zk_hosts = split /,/, $zk->hosts;
my @followers = $zk->followers;
is(scalar(@followers), 2, 'two followers');

# Server a begins at a follower, server b at any server.
my %settings = (
	'zklock.session_timeout' => '15s',
	'zklock.connection_timeout' => '2min',
	'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', undef, %settings,
	'zklock.hosts' => join(',', map { $zk_hosts[ $_ - 1 ] } @followers));
my $node_b = ZklockNode->started('b', $zk, %settings);
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');

my ($a1, $a2, $a3, $b1, $b2) =
  map { $_->backend } $node_a, $node_a, $node_a, $node_b, $node_b;

# Which ZooKeeper server has this node's session?
sub server_of
{
	my ($node) = @_;
	my $server = $node->status('server');
	return (grep { $zk_hosts[ $_ - 1 ] eq $server } 1 .. 3)[0];
}

# The locks that are held and waited for all the time.
$a1->query(acquire('/held'));
$b1->query(acquire('/held by b'));
my $token = $a1->query(token('/held'));
$b2->send(acquire('/held'));
$a2->send(acquire('/held by b'));
$zk->wait_for_children('/zklock/held', 2);
$zk->wait_for_children('/zklock/held by b', 2);
my @sessions = map { $_->status('session_id') } $node_a, $node_b;
my $queues = [ map { $zk->children("/zklock/$_") } 'held', 'held by b' ];
my $n = 0;

sub all_goes_on
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$_->wait_until_connected foreach $node_a, $node_b;
	is_deeply([ map { $_->status('session_id') } $node_a, $node_b ],
		\@sessions, "$what: the same sessions");
	is($a1->query(held('/held')), 't', "$what: held");
	is($b1->query(held('/held by b')), 't', "$what: held on the other server");
	is($a1->query(token('/held')), $token, "$what: the same token");
	ok(!$a2->is_done && !$b2->is_done, "$what: others still wait");
	is_deeply([ map { $zk->children("/zklock/$_") } 'held', 'held by b' ],
		$queues, "$what: the same znodes");
	$n++;
	is($a3->query(acquire("/new$n")), 't', "$what: new locks can be had");
	is($a3->query("INSERT INTO t VALUES ('$what') RETURNING 'done'"), 'done', "$what: and guard commits");
	is($a3->query(release("/new$n")), 't', "$what: and be released");
	return;
}

# --- the follower that a server is connected to ---

my $follower = server_of($node_a);
isnt($follower, $zk->leader, 'connected to a follower');
$zk->kill9($follower);
$node_a->wait_until("SELECT server IS DISTINCT FROM '$zk_hosts[$follower - 1]' FROM zk_status");
all_goes_on('follower killed');
$zk->start($follower);
$node_a->set('zklock.hosts', $zk->hosts);
$node_a->wait_until(q{SELECT worker_pid IS NOT NULL FROM zk_status});
all_goes_on('list of servers changed');

# --- the leader ---

my $leader = $zk->leader;
my $connects = $node_a->status('connects');
$zk->kill9($leader);
$zk->wait_until_serving;
$node_a->wait_until("SELECT connects > $connects FROM zk_status");
all_goes_on('leader killed');
$zk->start($leader);

# --- all of them, in good order and not ---

foreach my $how ('stop', 'kill9')
{
	$zk->$how;
	$_->wait_until_away foreach $node_a, $node_b;
	$a3->send(acquire('/meanwhile'));
	$node_a->wait_for_waiter('/meanwhile', 1);
	$zk->start;
	is($a3->result->{out}, 't', "all ended by $how: the backend that came meanwhile has the lock");
	$a3->query(release('/meanwhile'));
	all_goes_on("all ended by $how");
}

# --- in doubt: all of them fall silent, and come back with the sessions ---

my $a4 = $node_a->backend;
my $a5 = $node_a->backend;
$a3->query(acquire('/hand'));
$a4->send(acquire('/hand'));
$node_a->wait_for_waiter('/hand', 1);
$a5->query(q{BEGIN; SELECT zk_xact_lock_acquire('/guard')});
$a5->query(q{INSERT INTO t VALUES ('in doubt')});

$zk->pause;
$a1->wait_until(q{SELECT NOT safe FROM zk_status});
my %seen = (
	held => $a1->query(held('/held')),
	token => $a1->errcode(token('/held')),
	try => $a3->errcode(try('/unanswered')),
	commit => $a5->run('COMMIT'),
	write => $a1->errcode(q{INSERT INTO t VALUES ('in doubt')}),
	read => $a1->errcode('SELECT 1'),
	release => $a3->query(release('/hand')));
$a5->send(acquire('/unanswered'));
$a1->send(acquire('/held'));
$node_a->wait_for_waiter('/unanswered', 1);
$seen{granted} = $a4->is_done;

# If the machine is slow, a leader that is resumed may find that the sessions have expired
# meanwhile.  A leader that starts gives them their time anew.
$zk->kill9;
$zk->start;
my $served = time;

is($seen{held}, 'f', 'in doubt: not held for certain');
is($seen{token}, 'ZK001', 'in doubt: no token');
is($seen{try}, '08006', 'in doubt: a try is no refusal');
is($seen{commit}{errcode}, 'ZK001', 'in doubt: no commit');
like($seen{commit}{err}, qr/lock "\/guard" is in doubt/, 'in doubt: says which lock');
is($seen{write}, 'ZK001', 'in doubt: no write under a session-level lock');
is($seen{read}, '', 'in doubt: but a transaction that only reads is not stopped');
is($seen{release}, 't', 'in doubt: release');
ok(!$seen{granted}, 'in doubt: nothing is handed on');

is($a4->result->{out}, 't', 'then it is handed on');
is($a5->result->{out}, 't', 'and new locks can be had');
my $again = $a1->result;
is($again->{out}, 't', 'and the backend that acquired again has it');
cmp_ok(time - $served, '<', 30, 'and the backend that acquired again has it, soon');
$a1->query(release('/held'));
$a4->query(release('/hand'));
$a5->query(release('/unanswered'));
all_goes_on('in doubt and good again');
is($node_a->safe_psql('postgres', q{SELECT count(*) FROM t WHERE v = 'in doubt'}), '0',
	'what was refused is not there');

# --- the end ---

is($node_a->status('expirations') + $node_b->status('expirations'), 0, 'no session has expired');
$a1->query(release('/held'));
is($b2->result->{out}, 't', 'the waiter behind the first lock');
$b1->query(release('/held by b'));
is($a2->result->{out}, 't', 'the waiter behind the second');
$a2->query('SELECT zk_lock_release_all()');
$b2->query('SELECT zk_lock_release_all()');

foreach my $node ($node_a, $node_b)
{
	$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks});
}
$_->quit foreach $a1, $a2, $a3, $a4, $a5, $b1, $b2;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');
$_->stop foreach $node_a, $node_b;

done_testing();
