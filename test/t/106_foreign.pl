
# Other clients on the same path, and other things in a lock's directory.

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
my ($a1, $a2, $b1) = map { $_->backend } $node_a, $node_a, $node_b;

# A contender as other clients make it: ephemeral, sequential.
my %prefix = (
	'Curator' => '_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-',
	'kazoo' => '8f3d5c1e9a7b4d2f8c6e0a1b3d5f7e9c__lock__',
	'kazoo, reading' => '8f3d5c1e9a7b4d2f8c6e0a1b3d5f7e9c__rlock__',
	'an old Curator' => 'lock-');

sub queue
{
	my ($path, $client, %opt) = @_;
	my $prefix = $prefix{ $opt{as} // 'Curator' };
	return $zk->create("/zklock$path/$prefix",
		ephemeral => 1, sequence => 1, client => $client,
		$opt{perms} ? (perms => $opt{perms}) : ());
}

# --- in the queue with other clients ---

foreach my $kind (sort keys %prefix)
{
	my $path = '/' . $kind =~ s/\W+/_/gr;

	queue($path, 'first', as => $kind);
	is($a1->query(try($path)), 'f', "$kind: a try finds it held");
	is($a1->query(acquire($path, '200ms')), 'f', "$kind: and so does a wait");
	$zk->wait_for_children("/zklock$path", 1);
	$a1->send(acquire($path));
	$zk->wait_for_children("/zklock$path", 2);
	queue($path, 'second', as => $kind);
	$b1->send(acquire($path));
	$zk->wait_for_children("/zklock$path", 4);
	$a2->send(acquire($path));
	$node_a->wait_for_waiter($path, 2);
	ok(!$a1->is_done, "$kind: waits");

	$zk->close('first');
	is($a1->result->{out}, 't', "$kind: has it when the other client has gone");
	$node_a->wait_until_contended($path);
	$a1->query(release($path));
	$zk->wait_for_children("/zklock$path", 3);
	ok(!$b1->is_done && !$a2->is_done, "$kind: now the other client has it");

	$zk->close('second');
	is($b1->result->{out}, 't', "$kind: then the other server");
	ok(!$a2->is_done, "$kind: and not the first one");
	$b1->query(release($path));
	is($a2->result->{out}, 't', "$kind: until it is its turn again");
	$a2->query(release($path));
	$zk->wait_for_children("/zklock$path", 0);
}

# In the middle of the queue, other clients come and go.
$a1->query(acquire('/middle'));
my $one = queue('/middle', 'one');
my $two = queue('/middle', 'two');
$b1->send(acquire('/middle'));
$zk->wait_for_children('/zklock/middle', 4);
$node_b->wait_for_ticket('/middle', 'queued');
$zk->delete($one);
$zk->delete($two);
$zk->wait_for_children('/zklock/middle', 2);
ok(!$b1->is_done, 'the client before it has gone, but there is another one before it');
is($node_b->status('tickets_lost'), '0', 'and nothing was lost');
$a1->query(release('/middle'));
is($b1->result->{out}, 't', 'gets the lock after all of them');
$b1->query(release('/middle'));

# The data of a watched znode may change without a consequence.
$one = queue('/middle', 'one');
$a1->send(acquire('/middle'));
$node_a->wait_for_ticket('/middle', 'queued');
$zk->set($one, 'changed');
$zk->set($one, '__REVOKE__');
$node_a->wait_for_ticket('/middle', 'queued');
ok(!$a1->is_done, 'a change of the data is no release');
$zk->close('one');
is($a1->result->{out}, 't', 'a deletion is');
$zk->set('/zklock/middle/' . $zk->children('/zklock/middle')->[0], 'changed');
is($a1->query(q{SELECT zk_lock_is_held('/middle')}), 't', 'others may write to its znode');
$a1->query(release('/middle'));

# --- what is no contender ---

my @junk = qw(abc 0 -x leases locks lock-x 0000000001 lock-12 -lock _c_ lock__0000000001 __lock__);
$zk->create("/zklock/junk/$_", data => 'x') foreach @junk;
$zk->create('/zklock/junk/sequence', sequence => 1);
is($a1->query(acquire('/junk', '1min')), 't', 'other children do not count');
is($node_a->safe_psql('postgres', q{SELECT contended FROM zk_locks WHERE path = '/junk'}),
	'f', 'neither before nor behind');
is($b1->query(try('/junk')), 'f', 'the lock is held');
$a1->query(release('/junk'));
is($b1->query(acquire('/junk', '1min')), 't', 'and handed on');
$b1->query(release('/junk'));
is(scalar(@{ $zk->wait_for_children('/zklock/junk', @junk + 1) }), @junk + 1, 'others are left alone');

# A lock inside of a lock's directory.
is($a1->query(acquire('/junk/leases')), 't', 'a lock inside of the directory of another');
is($b1->query(acquire('/junk', '1min')), 't', 'has nothing to do with it');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;

# A name without a number goes before all others, as Curator sees it.
$zk->create('/zklock/empty/lock-');
is($a1->query(try('/empty')), 'f', 'a znode without a number holds the lock');
$a1->send(acquire('/empty'));
$node_a->wait_for_ticket('/empty', 'queued');
$zk->delete('/zklock/empty/lock-');
is($a1->result->{out}, 't', 'until it is deleted');
$a1->query(release('/empty'));

# A znode whose name is too long to be remembered is refused, and no backend waits for it in vain.
$zk->create('/zklock/long/' . 'x' x 200 . '-lock-', ephemeral => 1, sequence => 1);
is($a1->errcode(acquire('/long')), '54000', 'a name that is too long');
$zk->wait_for_children('/zklock/long', 1);

# --- access control ---

sub is_denied
{
	my ($result, $path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{errcode}, '28000', $what);
	like($result->{err}, qr/permission denied by ZooKeeper for lock "\Q$path\E"/, "$what: message");
	return;
}

$zk->create('/zklock/unreadable');
my $secret = queue('/unreadable', 'secretive', perms => 'cdwa');
is_denied($a1->run(acquire('/unreadable')), '/unreadable', 'the znode before it cannot be read');
$zk->wait_for_children('/zklock/unreadable', 1);
$zk->close('secretive');
is($a1->query(acquire('/unreadable', '1min')), 't', 'afterwards the lock can be had');
queue('/unreadable', 'secretive', perms => 'cdwa');
$node_a->wait_until_contended('/unreadable');
is($a1->query(q{SELECT zk_lock_is_held('/unreadable')}), 't', 'a hidden znode behind it does no harm');
$a1->query(release('/unreadable'));
$zk->wait_for_children('/zklock/unreadable', 1);
$zk->close('secretive');

$zk->create('/zklock/no_create', perms => 'rdwa');
is_denied($a1->run(acquire('/no_create')), '/no_create', 'no permission to create');
is_denied($a1->run(acquire('/no_create/deeper')), '/no_create/deeper', 'no permission to create the directory');
is_denied($a1->run(try('/no_create')), '/no_create', 'a try');
is_denied($a1->run(acquire('/no_create', '1min')), '/no_create', 'with a timeout');
is_deeply($zk->children('/zklock/no_create'), [], 'nothing was made');

$zk->create('/zklock/no_read', perms => 'cdwa');
is($a1->query(acquire('/no_read')), 't', 'no permission to list: the first ever has the lock');
$node_a->wait_until(q{SELECT owned_since < now() - interval '50 ms' FROM zk_locks WHERE path = '/no_read'});
is($a1->query("SELECT zk_lock_is_held('/no_read')"), 't', 'and keeps it, though it cannot see its queue');
is_denied($b1->run(acquire('/no_read', '1min')), '/no_read', 'no permission to list: the second');
$a1->query(release('/no_read'));
$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/no_read'});
is_denied($a1->run(acquire('/no_read')), '/no_read', 'no permission to list');
is_denied($b1->run(acquire('/no_read', '1min')), '/no_read', 'with a timeout');
ok($zk->wait_until(sub { eval { $zk->delete('/zklock/no_read'); 1 } }, 'the directory to be empty'), 'nothing is left');

# Some of the directories above a lock may be closed, if they exist.
$zk->create('/zklock/closed/open');
$zk->allow($_, 'ra') foreach '/', '/zklock/closed';
is($a1->run(acquire('/closed/open/some/job'))->{err} // '', '', 'closed above: a lock');
is($b1->run(q{SELECT zk_semaphore_acquire('/closed/open/deep/in/it', 2)})->{err} // '', '', 'closed above: a semaphore');
is($b1->run(try('/closed/open/another/job'))->{err} // '', '', 'closed above: a try');
is_denied($a1->run(acquire('/closed/job')), '/closed/job', 'closed above, and not there');
is_denied($a1->run(try('/closed/some/job')), '/closed/some/job', 'a try of the same');
$zk->allow('/', 'rcdwa');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;
$node_b->wait_until('SELECT entries = 0 AND ephemeral_bytes = 0 FROM zk_status');

# All waiters of one server learn it.
$zk->create('/zklock/unreadable2');
queue('/unreadable2', 'first');
queue('/unreadable2', 'secretive', perms => 'cdwa');
is_denied($a1->run(acquire('/unreadable2')), '/unreadable2', 'hidden');
is($a1->query('SELECT 1'), '1', 'the session goes on');

# An ephemeral znode has no children.
$zk->create('/zklock/ephemeral', ephemeral => 1);
is($a1->errcode(acquire('/ephemeral/job')), '22023', 'a parent is ephemeral');
is($a1->errcode(acquire('/ephemeral')), '22023', 'the directory is ephemeral');

$node_a->wait_until('SELECT count(*) = 0 FROM zk_locks');
pass('no entry is left');
is($node_a->status('connects'), '1', 'the connection was never broken');
$_->quit foreach $a1, $a2, $b1;

# The root cannot be read.  A heartbeat that is refused went through the quorum, too, and so proves
# that the session lives.
$zk->allow('/', 'cdwa');
$node_a->configure('zklock.session_timeout' => '12s');
$node_a->restart;
$node_a->wait_until_connected;
$a1 = $node_a->backend;
is($a1->query(acquire('/hidden_root', '1min')), 't', 'the root cannot be read: a lock can be had');
my $connected = $node_a->status('connected_since');
$node_a->wait_until("SELECT safe_until > '$connected'::timestamptz + 2 * session_timeout FROM zk_status");
is($a1->query("SELECT zk_lock_is_held('/hidden_root')"), 't', '... and is held for longer than a session lives by itself');
is($a1->query('SELECT safe, epoch, connects FROM zk_status'), 't|1|1', '... in the same session, over the same connection');
unlike(slurp_file($node_a->logfile), qr/refuses the heartbeat/, '... and nothing is wrong');
$a1->quit;
$zk->allow('/', 'rcdwa');

$_->stop foreach $node_a, $node_b;
done_testing();
