# The same lock on three servers: which server has it, which is next, and what it costs.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;

# Every ticket is given up at once, and is handed on within the server without a time limit; tests
# that need other settings set them.
my @settings = (
	'zklock.session_timeout' => '20s',
	'zklock.linger' => 0,
	'zklock.tenure' => '1h');
my $node_a = ZklockNode->started('a', $zk, @settings);
my $node_b = ZklockNode->started('b', $zk, @settings);
my $node_c = ZklockNode->started('c', $zk, @settings);

my ($on_a, $on_a2, $on_b, $on_c) = map { $_->backend } $node_a, $node_a, $node_b, $node_c;

sub grows { my @n = @_; return !grep { $n[$_] <= $n[ $_ - 1 ] } 1 .. $#n; }

# --- exclusion ------------------------------------------------------------------

foreach my $scope ('session', 'transaction')
{
	my $path = "/exclusion/$scope";
	my $acquire = $scope eq 'session' ? 'zk_lock_acquire' : 'zk_xact_lock_acquire';

	$on_a->query('BEGIN');
	is($on_a->query("SELECT $acquire('$path')"), 't', "$scope: acquired on one server");
	is($on_a->query("SELECT zk_lock_is_held('$path')"), 't', "$scope: and held there");
	is($on_b->query("SELECT $acquire('$path', '0')"), 'f', "$scope: a try fails on another server");
	is($zk->wait_for_children("/zklock$path", 1) && 1, 1, "$scope: and leaves no znode");

	$on_b->send("BEGIN; SELECT $acquire('$path')");
	$node_b->wait_for_ticket($path, 'queued');
	is(scalar @{ $zk->children("/zklock$path") }, 2, "$scope: two servers queue");

	$on_a->query('COMMIT');
	if ($scope eq 'session')
	{
		$node_b->wait_for_ticket($path, 'queued');
		ok(!$on_b->is_done, 'session: the commit does not release');
		is($on_a->query("SELECT zk_lock_is_held('$path')"), 't', 'session: and the lock is still held');
		is($on_a->query(release($path)), 't', 'session: release');
	}
	is($on_b->answer, 't', "$scope: the waiter has it next");
	is($on_a->query("SELECT $acquire('$path', '0')"), 'f', "$scope: now the first one is excluded");

	$on_b->query('ROLLBACK');
	is($on_b->query(release($path)), 't', 'session: the rollback did not release') if $scope eq 'session';
	$zk->wait_for_children("/zklock$path", 0);
	$_->wait_until_clean($path) foreach $node_a, $node_b;
	pass("$scope: nothing is left");
}

# --- first come, first served -----------------------------------------------------

foreach my $order ([ $on_b, $on_c ], [ $on_c, $on_b ])
{
	my %name = ($on_b => 'b', $on_c => 'c');
	my %node = ($on_b => $node_b, $on_c => $node_c);
	my ($first, $second) = @$order;
	my $what = "queue of $name{$first}, $name{$second}";

	$on_a->query(acquire('/fifo'));
	$first->send(acquire('/fifo'));
	$node{$first}->wait_for_ticket('/fifo', 'queued');
	$second->send(acquire('/fifo'));
	$node{$second}->wait_for_ticket('/fifo', 'queued');

	# Only when the first server has the lock may the other one be watched again.
	$on_a->query(release('/fifo'));
	is($first->answer, 't', "$what: the first one is served");
	$node{$second}->wait_for_ticket('/fifo', 'queued');
	ok(!$second->is_done, "$what: the second one still waits");

	# The server that had the lock queues behind the one that waited.
	$on_a->send(acquire('/fifo'));
	$node_a->wait_for_ticket('/fifo', 'queued');
	$first->query(release('/fifo'));
	is($second->answer, 't', "$what: the second one is served");
	$node_a->wait_for_ticket('/fifo', 'queued');
	ok(!$on_a->is_done, "$what: the server that comes back waits");
	$second->query(release('/fifo'));
	is($on_a->answer, 't', "$what: and is the last in the queue");
	$on_a->query(release('/fifo'));
	$_->wait_until_clean('/fifo') foreach $node_a, $node_b, $node_c;
}

# --- one ticket a server -----------------------------------------------------------

$on_a->query(acquire('/house'));
my $first_token = $on_a->query("SELECT zk_lock_token('/house')");
$on_b->send(acquire('/house'));
$node_b->wait_for_ticket('/house', 'queued');
is($node_b->safe_psql('postgres', q{SELECT znode FROM zk_locks WHERE path = '/house'}),
	(sort { substr($a, -10) cmp substr($b, -10) } @{ $zk->children('/zklock/house') })[1],
	'a waiting server shows its znode');
my @waiters = map { $node_b->backend } 1 .. 4;
foreach my $i (0 .. $#waiters)
{
	$waiters[$i]->send(acquire('/house'));
	$node_b->wait_for_waiter('/house', $i + 2);
}
is(scalar @{ $zk->children('/zklock/house') }, 2, 'one znode for five local waiters');

my $tickets = $node_b->status('tickets');
$on_a->query(release('/house'));
my @tokens = ($first_token);
foreach my $waiter ($on_b, @waiters)
{
	is($waiter->answer, 't', 'the next local waiter in turn is served');
	push @tokens, $waiter->query("SELECT zk_lock_token('/house')");
	$waiter->query(release('/house'));
}
is($node_b->status('tickets'), $tickets, 'without another ticket');
ok(grows(@tokens), 'tokens grow from ticket to ticket, and within one');
$_->quit foreach @waiters;
$node_b->wait_until_clean('/house');

# --- tenure ------------------------------------------------------------------------

# Within the tenure, the server hands a contended ticket on among its own backends.
$on_a->query(acquire('/tenure'));
$on_b->send(acquire('/tenure'));
$node_b->wait_for_ticket('/tenure', 'queued');
$node_a->wait_until_contended('/tenure');
$on_a2->send(acquire('/tenure'));
$node_a->wait_for_waiter('/tenure', 1);
$on_a->query(release('/tenure'));
is($on_a2->answer, 't', 'within the tenure the local waiter comes first');
$node_b->wait_for_ticket('/tenure', 'queued');
ok(!$on_b->is_done, 'and the other server waits');
$on_a2->query(release('/tenure'));
is($on_b->answer, 't', 'until no backend of the first server wants it');
$on_b->query(release('/tenure'));

# Without a tenure, ZooKeeper's queue has its turn after every claim.
$node_a->set('zklock.tenure', '0');
my ($a_new, $a_new2) = map { $node_a->backend } 1, 2;
$a_new->query(acquire('/tenure'));
$on_b->send(acquire('/tenure'));
$node_b->wait_for_ticket('/tenure', 'queued');
$node_a->wait_until_contended('/tenure');
$a_new2->send(acquire('/tenure'));
$node_a->wait_for_waiter('/tenure', 1);
$a_new->query(release('/tenure'));
is($on_b->answer, 't', 'without tenure the other server comes first');
$node_a->wait_for_ticket('/tenure', 'queued');
ok(!$a_new2->is_done, 'and the local waiter queues again');
$on_b->query(release('/tenure'));
is($a_new2->answer, 't', 'behind it');
$_->quit foreach $a_new, $a_new2;
$node_a->set('zklock.tenure', '1h');
$_->wait_until_clean('/tenure') foreach $node_a, $node_b;

# --- timeout -------------------------------------------------------------------------

$on_a->query(acquire('/timeout'));
is($on_b->query("SELECT zk_lock_acquire('/timeout', '700ms'), clock_timestamp() - statement_timestamp() >= '700ms'"),
	'f|t', 'a timeout returns false, and not before its time');
$zk->wait_for_children('/zklock/timeout', 1);
$node_b->wait_until_clean('/timeout');
is($node_a->safe_psql('postgres', "SELECT granted FROM zk_locks WHERE path = '/timeout'"),
	't', 'the holder is not concerned');

is($on_a2->query("SELECT zk_lock_acquire('/timeout', '300ms'), clock_timestamp() - statement_timestamp() >= '300ms'"),
	'f|t', 'the same in the server itself');
$on_a2->query('BEGIN');
is($on_a2->query("SELECT zk_lock_acquire('/timeout', '10ms')"), 'f', 'and in a transaction');
is($on_a2->query('SELECT 1'), '1', 'which goes on');
$on_a2->query('COMMIT');

# A waiter that gives up makes way for the one behind it.
$on_b->send(acquire('/timeout'));
$node_b->wait_for_ticket('/timeout', 'queued');
$on_c->send(acquire('/timeout'));
$node_c->wait_for_ticket('/timeout', 'queued');
$node_b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $on_b->pid . ')');
is($on_b->result->{errcode}, '57014', 'the waiter in the middle gives up');
$zk->wait_for_children('/zklock/timeout', 2);
ok(!$on_c->is_done, 'the one behind it does not take that for a release');
$on_a->query(release('/timeout'));
is($on_c->answer, 't', 'but is served when the holder releases');
$on_c->query(release('/timeout'));

# --- watches ---------------------------------------------------------------------------

# An owned ticket has a watch, too.
sub watches { my ($n) = $zk->cmd('wchs') =~ /Total watches:(\d+)/; return $n; }
$on_a->query(acquire('/watches'));
$on_b->send(acquire('/watches'));
$node_a->wait_until_contended('/watches');
$node_b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $on_b->pid . ')');
is($on_b->result->{errcode}, '57014', 'cancelled');
$zk->wait_for_children('/zklock/watches', 1);
$node_b->wait_until_clean('/watches');
# A watch of the owner, which lists again now, may be on its way.
my $baseline = watches() + 1;
my $times_out = "SELECT count(*) FROM generate_series(1, 200) AS i WHERE NOT zk_lock_acquire('/watches', make_interval(secs => (i % 20) / 1000.0))";
is($on_b->run_again($times_out)->{out}, 200, '200 acquires time out');
$zk->wait_for_children('/zklock/watches', 1);
$node_b->wait_until_clean('/watches');
$zk->wait_until(sub { watches() <= $baseline }, 'watches to be back at the baseline');
cmp_ok(watches(), '<=', $baseline, 'and leave no watches');
$on_a->query(release('/watches'));
$node_a->wait_until_clean('/watches');

# --- cost ---------------------------------------------------------------------------------

# ZooKeeper itself counts: cversion grows with each znode that is created or deleted in a directory.
sub counts
{
	my ($node, $path) = @_;
	my $stat = $zk->exists("/zklock$path");
	return (split(/\|/, $node->status('tickets, requests')), $stat ? $stat->{cversion} : 0);
}

sub difference { my ($x, $y) = @_; return join ' ', map { $y->[$_] - $x->[$_] } 0 .. $#$x; }

# Another server has made the directory, but this server has not seen it yet, so it sends the
# directory's create ahead.  The number of the ticket's znode then says that a list is needed.
$on_b->query(acquire('/cost'));
$on_b->query(release('/cost'));
$zk->wait_for_children('/zklock/cost', 0);

# A server that holds the lock for longer watches its own znode.  That is the last request, so wait
# for it.
sub counts_when_watched
{
	my ($node, $path, $requests) = @_;
	$node->wait_until("SELECT requests >= $requests FROM zk_status");
	return counts($node, $path);
}

my @before = counts($node_a, '/cost');
$on_a->query(acquire('/cost'));
my @after = counts_when_watched($node_a, '/cost', $before[1] + 4);
is(difference(\@before, \@after), '1 4 1', 'the first acquire: one create, sent with the directory, and one list; then a watch');
$on_a->query(release('/cost'));
$zk->wait_for_children('/zklock/cost', 0);
$node_a->wait_until_clean('/cost');

@before = counts($node_a, '/cost');
$on_a->query(acquire('/cost'));
@after = counts_when_watched($node_a, '/cost', $before[1] + 3);
is(difference(\@before, \@after), '1 3 1', 'another one: one create, sent with one list; then a watch');
is($on_a->query(acquire('/cost_new')), 't', 'a path that no server has used');
is(difference(\@after, [ counts_when_watched($node_a, '/cost', $after[1] + 4) ]), '1 4 0', 'costs no more than one that others have used');
$on_a->query(release('/cost_new'));
$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/cost_new'});
@after = counts($node_a, '/cost');

@before = @after;
$on_a->query(acquire('/cost'));
$on_a->query('BEGIN; SELECT zk_xact_lock_acquire($$/cost$$); COMMIT');
$on_a->query(release('/cost'));
$on_a2->send(acquire('/cost'));
$node_a->wait_for_waiter('/cost', 1);
$on_a->query(release('/cost'));
is($on_a2->answer, 't', 'handed on within the server');
@after = counts($node_a, '/cost');
is(difference(\@before, \@after), '0 0 0', 'no request while the ticket stays with the server');
$on_a2->query(release('/cost'));
$zk->wait_for_children('/zklock/cost', 0);
@before = @after;
@after = counts($node_a, '/cost');
is(difference(\@before, \@after), '0 1 1', 'the release: one delete');

# Linger: a server keeps a ticket once its lock has come back.
$node_a->set('zklock.linger', '1h');
my $l = $node_a->backend;
$l->query(acquire('/linger'));
$l->query(release('/linger'));
$zk->wait_for_children('/zklock/linger', 0);
pass('a lock that was used once does not linger');
my @linger = counts($node_a, '/linger');
$l->query(acquire('/linger'));
$l->query(release('/linger'));
$node_a->wait_for_ticket('/linger', 'lingering');
is(scalar @{ $zk->children('/zklock/linger') }, 1, 'a lock that came back lingers');
@before = counts_when_watched($node_a, '/linger', $linger[1] + 3);
is($l->query("SELECT count(*) FROM generate_series(1, 50) WHERE zk_lock_acquire('/linger') AND zk_lock_release('/linger')"),
	50, 'acquired again, 50 times');
@after = counts($node_a, '/linger');
is(difference(\@before, \@after), '0 0 0', 'without any request');

is($on_b->query(acquire('/linger')), 't', 'another server gets a lingering ticket');
$node_a->wait_until_clean('/linger');
$on_b->query(release('/linger'));
$l->quit;
$node_a->set('zklock.linger', '0');

# --- several databases --------------------------------------------------------------------

$node_a->safe_psql('postgres', 'CREATE DATABASE other');
$node_a->safe_psql('other', 'CREATE EXTENSION zklock');
my $other = $node_a->backend(dbname => 'other');
$on_a->query(acquire('/databases'));
is($other->query(try('/databases')), 'f', 'a lock is the same in all databases');
$other->send(acquire('/databases'));
$node_a->wait_for_waiter('/databases', 1);
is(scalar @{ $zk->children('/zklock/databases') }, 1, 'with one znode for the server');
is( $node_a->safe_psql(
		'postgres',
		"SELECT string_agg(datname || ' ' || claim, ', ' ORDER BY claim) FROM zk_locks WHERE path = '/databases'"),
	'postgres held, other waiting',
	'zk_locks shows both');
$on_a->query(release('/databases'));
is($other->answer, 't', 'and it is handed on from one to the other');
is($on_b->query(try('/databases')), 'f', 'another server is excluded');
$other->quit;
is($on_b->query(acquire('/databases')), 't', 'until that session ends');
$on_b->query(release('/databases'));

# --- what is in ZooKeeper --------------------------------------------------------------------

$node_a->safe_psql('postgres', 'CREATE ROLE "big boss" LOGIN SUPERUSER');
my $boss = $node_a->backend(extra_params => [ '-U', 'big boss' ]);
$boss->query('SET application_name = $$nightly = 100%$$');
$boss->query(acquire('/deep/down/job'));
my ($znode) = @{ $zk->children('/zklock/deep/down/job') };
like($znode, qr/^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-lock-\d{10}$/,
	'the name of a znode');
my $stat = $zk->get("/zklock/deep/down/job/$znode");
is($stat->{data},
	'server=a pid=' . $boss->pid . ' database=postgres role=big%20boss application=nightly%20=%20100%25',
	'its data names the requester');
is(sprintf('0x%x', $stat->{ephemeralOwner}), $node_a->status('session_id'),
	'it belongs to the session of the server');
is($node_a->safe_psql('postgres', "SELECT znode FROM zk_locks WHERE path = '/deep/down/job'"),
	$znode, 'zk_locks names it');
# Not even an application of that name requests the release.
$on_b->query('SET application_name = __REVOKE__');
$on_b->send(acquire('/deep/down/job'));
$node_b->wait_for_ticket('/deep/down/job', 'queued');
foreach my $name (@{ $zk->children('/zklock/deep/down/job') })
{
	isnt($zk->get("/zklock/deep/down/job/$name")->{data}, '__REVOKE__', 'no znode requests the release');
}
$boss->quit;
is($on_b->answer, 't', 'the end of a session releases');
$on_b->query(release('/deep/down/job'));
$on_b->query('RESET application_name');

# --- tokens, and the reaping of directories -----------------------------------------------------

my @chain;
foreach my $s ($on_a, $on_b, $on_c, $on_a, $on_c, $on_b)
{
	$s->query(acquire('/tokens'));
	push @chain, $s->query("SELECT zk_lock_token('/tokens')");
	$s->query(acquire('/tokens'));
	is($s->query("SELECT zk_lock_token('/tokens')"), $chain[-1], 're-entrance keeps the token');
	$s->query("SELECT zk_lock_release_all()");
}
ok(grows(@chain), 'tokens grow from server to server');

$zk->{java_opts} = '-Dznode.container.checkIntervalMs=100';
$zk->restart;
$_->wait_until_connected foreach $node_a, $node_b, $node_c;
$zk->wait_for_gone('/zklock/tokens');
foreach my $s ($on_b, $on_a)
{
	$s->query(acquire('/tokens'));
	push @chain, $s->query("SELECT zk_lock_token('/tokens')");
	$s->query(release('/tokens'));
	$zk->wait_for_gone('/zklock/tokens');
}
cmp_ok($chain[-2], '>', $chain[-3], 'they grow over the reaping of the directory');
cmp_ok($chain[-1], '>', $chain[-2], 'each time');
$on_a->query(acquire('/tokens'));
like($zk->children('/zklock/tokens')->[0], qr/-0{10}$/, 'where sequence numbers begin anew');
$on_a->query(release('/tokens'));

$zk->wait_until(sub { join(' ', @{ $zk->children('/zklock') }) eq '.zklock' }, 'the directories of all locks to go');
pass('all parents are containers: in the end nothing is left in ZooKeeper but the records of the servers');

$_->quit foreach $on_a, $on_a2, $on_b, $on_c;
$_->stop foreach $node_a, $node_b, $node_c;
done_testing();
