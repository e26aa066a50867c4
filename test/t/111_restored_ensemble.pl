
# An ensemble that was away for long, is empty, or was restored from a backup: servers go on without
# help, and hold nothing that is not theirs any more.

use strict;
use warnings;

use ZklockTest;

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

# The present sessions live for longer than the servers wait for them.
$_->set('zklock.session_timeout', '8s') foreach $node_a, $node_b;
my $worker = $node_a->worker_pid;

sub sessions { return [ map { $_->status('session_id') } $node_a, $node_b ]; }

# An ensemble that has lost transactions refuses each client that has seen them, and so would refuse
# the test's own.  The test therefore closes its session before, and has another one afterwards.

# Stop ZooKeeper until both servers have another client, which has seen nothing yet.
sub while_away
{
	my ($do) = @_;
	my @at = map { -s $_->logfile } $node_a, $node_b;
	$zk->close('default');
	$zk->stop;
	$do->();
	$_->wait_for_log(qr/continuing the ZooKeeper session with a new client handle/, shift @at) foreach $node_a, $node_b;
	$zk->start;
	$_->wait_until_connected foreach $node_a, $node_b;
	return;
}

# Stop the ensemble, and start it again at once: it refuses the servers, which know later
# transactions than it does.
sub meanwhile
{
	my ($do) = @_;
	$zk->close('default');
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
my $set_back = qr/WARNING:  ZooKeeper was probably set back to an earlier state of its data/;
$node_a->wait_until(q{SELECT count(*) = 2 FROM zk_servers});
unlike(slurp_file($node_a->logfile), $set_back, 'away for long: with the same data');
is($a1->query(held('/job')), 't', 'away for long: held');
is($a1->query(q{SELECT zk_lock_token('/job')}), $token, 'away for long: the same token');
is_deeply($zk->children('/zklock/job'), $queue, 'away for long: the same znodes');
ok(!$b1->is_done, 'away for long: the waiter goes on');

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
foreach my $node ($node_a, $node_b)
{
	$node->wait_until('SELECT ensemble_changes = 1 FROM zk_status');
	is(scalar(() = slurp_file($node->logfile) =~ /$set_back/g), 1, 'restored: one warning, which is counted: ' . $node->name);
}
is_deeply($zk->children('/zklock/job'), $queue, 'restored: by the same znode');
ok(!$b1->is_done, 'restored: the waiter goes on');
$a2->run('SELECT zk_lock_release_all()');
is($a2->query(acquire('/released later')), 't', 'restored: the server does not wait for its own released znode');
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
	is(scalar(() = slurp_file($node_a->logfile) =~ /$set_back/g), 1, "$what: that is another warning");
	is($b1->result->{out}, 't', "$what: the waiter has the lock");
	is($a1->query(held('/job')), 'f', "$what: the former holder does not");
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
is($node_a->worker_pid, $worker, 'the worker was not restarted');
$_->run('SELECT zk_lock_release_all()') foreach $a1, $a2, $b1;
$_->wait_until('SELECT count(*) = 0 FROM zk_locks') foreach $node_a, $node_b;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');
is($node_a->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', 'nothing was written without a lock');

# --- an ensemble that has elected very often: the upper 32 bits of a zxid count the elections ---

# A ZooKeeper server takes the zxid from the name of its newest snapshot.
sub elect
{
	my ($times) = @_;
	$zk->restart;		# which makes a snapshot
	$zk->stop;
	my ($newest, @others) = sort { hex($b =~ s/.*\.//r) <=> hex($a =~ s/.*\.//r) } glob "$data/snapshot.*";
	unlink @others, glob "$data/log.*";
	rename $newest, sprintf('%s/snapshot.%x00000000', $data, $times) or die $!;
	$zk->start;
	$_->wait_until_connected foreach $node_a, $node_b;
	return;
}

my $log_at = -s $node_a->logfile;
elect(32_767);
is($a1->query(acquire('/elections')), 't', 'after 32,767 elections: acquired');
cmp_ok($a1->query(q{SELECT zk_lock_token('/elections')}), '>', $token, 'and the token is greater than before');
like(slurp_file($node_a->logfile, $log_at), qr/WARNING:  the ZooKeeper ensemble has elected a leader 32767 times, and its tokens end after 32767 elections/,
	'and the log warns');
elect(32_768);
is($a1->query(held('/elections')), 't', 'one election later: what is held is held');
foreach my $call ('zk_lock_acquire($$/other$$)', 'zk_lock_acquire($$/elections/new$$)', 'zk_read_lock_acquire($$/reads$$)', 'zk_semaphore_acquire($$/sem$$, 2)')
{
	is($b1->errcode("SELECT $call"), '53400', "but refused: $call");
}
$a1->query(q{SELECT zk_lock_release('/elections')});
$_->wait_until('SELECT count(*) = 0 FROM zk_locks') foreach $node_a, $node_b;

$_->quit foreach $a1, $a2, $b1;
$_->stop foreach $node_a, $node_b;

done_testing();
