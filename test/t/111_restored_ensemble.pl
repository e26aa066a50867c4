
# An ensemble that was away for long, is empty, or was restored from a backup: servers go
# on without help, and what is not theirs any more they do not hold.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '20s',
	'zklock.connection_timeout' => '2min',
	'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $a2, $b1) = map { $_->backend } $node_a, $node_a, $node_b;
my $data = "$zk->{directory}/1/data/version-2";
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');

# The sessions of now live for longer than the servers wait for them.
$_->set('zklock.session_timeout', '4s') foreach $node_a, $node_b;
my $worker = $node_a->worker_pid;

sub acquire { my ($path) = @_; return "SELECT zk_lock_acquire('$path')"; }
sub held { my ($path) = @_; return "SELECT zk_lock_is_held('$path')"; }
sub sessions { return [ map { $_->status('session_id') } $node_a, $node_b ]; }

# Stop ZooKeeper until both servers have another client, which has seen nothing yet.
sub while_away
{
	my ($do) = @_;
	my @at = map { -s $_->logfile } $node_a, $node_b;
	$zk->stop;
	$do->();
	$_->wait_for_log(qr/continuing the ZooKeeper session with a new client handle/, shift @at) foreach $node_a, $node_b;
	$zk->start;
	$_->wait_until_connected foreach $node_a, $node_b;
	return;
}

# Stop it, and start it again at once: it refuses them, who know more than it does.
sub meanwhile
{
	my ($do) = @_;
	$zk->stop;
	$do->();
	$zk->start;
	$_->wait_until_connected foreach $node_a, $node_b;
	return;
}

# --- away for longer than the session timeout: nothing is lost ---

$a1->query(acquire('/job'));
my $token = $a1->query(q{SELECT zk_lock_token('/job')});
$b1->send(acquire('/job'));
my $queue = $zk->wait_for_children('/zklock/job', 2);
my $sessions = sessions();
while_away(sub { });
is_deeply(sessions(), $sessions, 'away for long: the same sessions');
is($a1->query(held('/job')), 't', 'away for long: held');
is($a1->query(q{SELECT zk_lock_token('/job')}), $token, 'away for long: the same token');
is_deeply($zk->children('/zklock/job'), $queue, 'away for long: the same znodes');
ok(!$b1->is_done, 'away for long: who waits goes on');

# --- restored from a backup in which the sessions live ---

$a2->query(acquire('/released later'));
$zk->stop;
system_or_bail('cp', '-r', $data, "$data.backup");
$zk->start;
$_->wait_until_connected foreach $node_a, $node_b;
$a2->query(q{SELECT zk_lock_release('/released later')});
$zk->wait_for_children('/zklock/released later', 0);
$a2->query(acquire('/acquired later'));
meanwhile(sub { system_or_bail('rm', '-rf', $data); rename "$data.backup", $data or die $!; });

is(scalar(@{ $zk->children('/zklock/released later') }), 1, 'restored: what was released is there again');
$a2->wait_until(q{SELECT claim = 'lost' FROM zk_locks WHERE path = '/acquired later'});
is($a2->errcode(q{INSERT INTO t VALUES ('restored')}), 'ZK001', 'restored: what was acquired later is lost');
is($a1->query(held('/job')), 't', 'restored: what was held then and is held now is held');
is_deeply($zk->children('/zklock/job'), $queue, 'restored: by the same znode');
ok(!$b1->is_done, 'restored: who waits goes on');
$a2->run('SELECT zk_lock_release_all()');
is($a2->query(acquire('/released later')), 't', 'restored: nobody waits for what it has released itself');
$zk->wait_for_children('/zklock/released later', 1);
$a2->query('SELECT zk_lock_release_all()');

# --- emptied ---

foreach my $how (\&meanwhile, \&while_away)
{
	my $what = $how == \&meanwhile ? 'emptied' : 'emptied, and long away';
	my $epoch = $node_a->status('epoch');
	$sessions = sessions();
	$how->(sub { system_or_bail('rm', '-rf', $data) });
	is(scalar(grep { my $id = $_; grep { $_ eq $id } @$sessions } @{ sessions() }), 0, "$what: new sessions");
	is($node_a->status('epoch'), $epoch + 1, "$what: one epoch later");
	is($b1->result->{out}, 't', "$what: who waited has the lock");
	is($a1->query(held('/job')), 'f', "$what: who held it does not");
	is($a1->errcode(q{INSERT INTO t VALUES ('emptied')}), 'ZK001', "$what: nor does it write");
	is($a1->run(q{SELECT zk_lock_release('/job')})->{out}, 'f', "$what: released");
	$a1->send(acquire('/job'));
	$zk->wait_for_children('/zklock/job', 2);
	$b1->query(q{SELECT zk_lock_release('/job')});
	is($a1->answer, 't', "$what: and acquired again");
	$b1->send(acquire('/job'));
	$zk->wait_for_children('/zklock/job', 2);
}

# --- the end ---

$a1->query(q{SELECT zk_lock_release('/job')});
is($b1->answer, 't', 'in the end, the next has the lock');
is($node_a->worker_pid, $worker, 'nobody had to restart the worker');
$_->run('SELECT zk_lock_release_all()') foreach $a1, $a2, $b1;
$_->wait_until('SELECT count(*) = 0 FROM zk_locks') foreach $node_a, $node_b;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');
is($node_a->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', 'nothing was written without a lock');
$_->quit foreach $a1, $a2, $b1;
$_->stop foreach $node_a, $node_b;

done_testing();
