
# A writer that becomes a reader: which clients get in, which do not, and what happens if the
# downgrade is disturbed.

use strict;
use warnings;

use Time::HiRes qw(usleep);

use HoldingProxy;
use ZklockTest qw(!acquire !release);

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = (
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min',
	'zklock.tenure' => 0,
	'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', undef, %settings, 'zklock.hosts' => $proxy->address);
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $a2, $a3, $b1) = map { $_->backend } ($node_a) x 3, $node_b;
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');

my $reader = qr/^_c_[0-9a-f-]{36}-__READ__\d{10}$/;
my $writer = qr/^_c_[0-9a-f-]{36}-__WRIT__\d{10}$/;

sub acquire { my ($mode, $path) = @_; return "SELECT zk_${mode}_lock_acquire('$path')"; }
sub release { my ($mode, $path) = @_; return "SELECT zk_${mode}_lock_release('$path')"; }

# The names in a lock's directory, in the order of their numbers.
sub queue
{
	my ($path) = @_;
	return sort { substr($a, -10) cmp substr($b, -10) } @{ $zk->children("/zklock$path") };
}

# The name of the reader's znode that takes the place of this writer's.
sub downgraded { my ($name) = @_; return $name =~ s/__WRIT__/__READ__/r; }

sub owner_of { my ($znode) = @_; return sprintf '0x%x', $zk->exists($znode)->{ephemeralOwner}; }

# a1 writes and reads; returns the name of its znode.
sub write_and_read
{
	my ($path) = @_;
	$a1->query(acquire('write', $path));
	$a1->query(acquire('read', $path));
	return $zk->children("/zklock$path")->[0];
}

# Another writer comes, and its server sees that it has to wait.
sub queue_up
{
	my ($backend, $node, $mode, $path) = @_;
	my $n = @{ $zk->children("/zklock$path") };
	$backend->send(acquire($mode, $path));
	$zk->wait_for_children("/zklock$path", $n + 1);
	$node->wait_for_ticket($path, 'queued');
	return;
}

sub wait_for_znode
{
	my ($node, $path, $name) = @_;
	$node->wait_until("SELECT coalesce(bool_and(znode = '$name'), false)"
		  . " FROM zk_locks WHERE path = '$path'");
	return;
}

sub wait_until_watched
{
	my ($node, $path) = @_;
	my $session = $node->status('session_id');
	return $zk->wait_until(sub { $zk->cmd('wchc') =~ /^\Q$session\E\n(?:\t.*\n)*\t\Q$path\E$/m },
		"session $session to watch $path");
}

# b1 waits to write; a1 reads, and then stops reading.
sub goes_on
{
	my ($path, $name, $token, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for_znode($node_a, $path, downgraded($name));
	$node_a->wait_until_contended($path);
	my @queue = queue($path);
	is(scalar(@queue), 2, "$what: two znodes");
	is($queue[0], downgraded($name), "$what: the reader's has the writer's place");
	wait_until_watched($node_b, "/zklock$path/$queue[0]");
	ok(!$b1->is_done, "$what: another writer waits");
	is($a1->query(held($path)), 't', "$what: still held");
	is($a1->query(token($path)), $token, "$what: with the same token");
	$a1->query(release('read', $path));
	ends_well($path, $token, $what);
	return;
}

# Now b1 has the lock, and then no backend has it.
sub ends_well
{
	my ($path, $token, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($b1->result->{out}, 't', "$what: then the other writer has it");
	cmp_ok($b1->query(token($path)), '>', $token, "$what: with a greater token");
	$zk->wait_for_children("/zklock$path", 1);
	like((queue($path))[0], $writer, "$what: and the only znode");
	$b1->query(release('write', $path));
	$zk->wait_for_children("/zklock$path", 0);
	$_->wait_until_clean($path) foreach $node_a, $node_b;
	return;
}

# --- undisturbed ---

my $name = write_and_read('/writer');
my $token = $a1->query(token('/writer'));
like($name, $writer, 'a writer\'s znode');
queue_up($b1, $node_b, 'write', '/writer');
$a1->query(release('write', '/writer'));
goes_on('/writer', $name, $token, 'a writer waits');

# A reader of the same server is let in.
$name = write_and_read('/local');
$a2->send(acquire('read', '/local'));
$node_a->wait_for_waiter('/local', 1);
ok(!$a2->is_done, 'a reader of the same server waits for a writer');
$a1->query(release('write', '/local'));
is($a2->result->{out}, 't', 'and is let in');
wait_for_znode($node_a, '/local', downgraded($name));
$_->query(release('read', '/local')) foreach $a1, $a2;
$zk->wait_for_children('/zklock/local', 0);

# So is a reader of another server, although a writer waits behind it.
$name = write_and_read('/readers');
$token = $a1->query(token('/readers'));
queue_up($b1, $node_b, 'read', '/readers');
$zk->create('/zklock/readers/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-__WRIT__',
	ephemeral => 1, sequence => 1, client => 'foreign');
ok(!$b1->is_done, 'a reader of another server waits for a writer');
$a1->query(release('write', '/readers'));
is($b1->result->{out}, 't', 'and is let in');
wait_for_znode($node_a, '/readers', downgraded($name));
is((queue('/readers'))[0], downgraded($name), 'the reader\'s znode has the writer\'s number');
like((queue('/readers'))[1], $reader, 'the other reader\'s comes next');
like((queue('/readers'))[2], $writer, 'and the other writer\'s last');
is(owner_of('/zklock/readers/' . downgraded($name)), $node_a->status('session_id'),
	'it goes with the session');
is($a1->query(token('/readers')), $token, 'it keeps the token');
$_->query(release('read', '/readers')) foreach $a1, $b1;
$zk->wait_for_children('/zklock/readers', 1);
$zk->close('foreign');
$zk->wait_for_children('/zklock/readers', 0);

# A writer's ticket serves local readers, until another client comes.
$a1->query(acquire('write', '/passed_on'));
($name) = queue('/passed_on');
$a2->send(acquire('read', '/passed_on'));
$node_a->wait_for_waiter('/passed_on', 1);
$a1->query(release('write', '/passed_on'));
is($a2->result->{out}, 't', 'a writer\'s ticket passed on to a reader');
is_deeply([ queue('/passed_on') ], [$name], 'no other client: the znode stays');
$b1->send(acquire('read', '/passed_on'));
is($b1->result->{out}, 't', 'a reader of another server: let in at once');
wait_for_znode($node_a, '/passed_on', downgraded($name));
$_->query('SELECT zk_lock_release_all()') foreach $a2, $b1;
$zk->wait_for_children('/zklock/passed_on', 0);

# What the server knew of the writer's znode, it knows of the reader's.
$name = write_and_read('/watched');
wait_until_watched($node_a, "/zklock/watched/$name");
$a1->query(release('write', '/watched'));
wait_for_znode($node_a, '/watched', downgraded($name));
wait_until_watched($node_a, '/zklock/watched/' . downgraded($name));
$zk->set('/zklock/watched/' . downgraded($name), '__REVOKE__');
$a1->wait_until(q{SELECT zk_lock_is_revoked('/watched')});
$a1->query('BEGIN; SET LOCAL zklock.on_lost = notice');
$a1->query(q{INSERT INTO t VALUES ('lost')});
$zk->delete('/zklock/watched/' . downgraded($name));
$node_a->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/watched'});
is($a1->errcode('COMMIT'), 'ZK001', 'the reader\'s znode is deleted: lost');
$a1->query('SELECT zk_lock_release_all()');

# --- refused: another client has put a znode of that name there ---

$name = write_and_read('/forged');
$token = $a1->query(token('/forged'));
$zk->create('/zklock/forged/' . downgraded($name), ephemeral => 1, client => 'forger');
$b1->send(acquire('write', '/forged'));
$zk->wait_for_children('/zklock/forged', 3);
$a1->query(release('write', '/forged'));
$node_a->wait_until_contended('/forged');
my $requests;
$zk->wait_until(sub { $requests = $node_a->status('requests'); usleep(300_000); return $requests == $node_a->status('requests') }, 'it to have asked');
usleep(500_000);
cmp_ok($node_a->status('requests'), '<=', $requests + 1, 'refused: not asked for again and again');
is($a1->query(held('/forged')), 't', 'refused: still held');
is(owner_of("/zklock/forged/$name"), $node_a->status('session_id'),
	'refused: by the writer\'s znode');
$zk->close('forger');
ok(!$b1->is_done, 'refused: another writer waits');
$a1->query(release('read', '/forged'));
ends_well('/forged', $token, 'refused');

# --- the connection is cut while it is under way ---

my $n = 0;

# The proxy holds up the request before it reaches ZooKeeper, or the reply on its way back.
sub begin_to_downgrade
{
	my ($what) = @_;
	my $path = '/cut' . ++$n;
	my $name = write_and_read($path);
	my $token = $a1->query(token($path));

	queue_up($b1, $node_b, 'write', $path);
	$node_a->wait_until_contended($path);

	# A downgrade that overtakes the worker's own write into the znode would be refused at first.
	$zk->wait_until(sub { $zk->get("/zklock$path/$name")->{data} =~ / in_use=t$/ }, 'the node\'s own write');
	$a1->query("SELECT FROM zk_lock_queue('$path')");			# answered after it

	$a1->query('BEGIN; SET LOCAL zklock.on_lost = notice');		# idle, it would be ended
	$a1->query("INSERT INTO t VALUES ('$path')");
	$proxy->hold($what);
	$a1->query(release('write', $path));
	if ($what eq 'replies')
	{
		$zk->wait_for_children("/zklock$path", sub { "@{ $_[0] }" =~ /__READ__/ });
	}
	else
	{
		usleep(100_000);
		is((queue($path))[0], $name, 'the request has not come to ZooKeeper');
	}
	return ($path, $name, $token);
}

foreach my $what (('requests', 'replies') x 3)
{
	my ($path, $name, $token) = begin_to_downgrade($what);
	ok(!$b1->is_done, "$what lost: another writer waits");
	$proxy->cut;
	$node_a->wait_until_connected;
	is($a1->errcode('COMMIT'), '', "$what lost: nothing else is");
	goes_on($path, $name, $token, "$what lost");
}

# The reader gives up before the server knows what has become of the downgrade.
foreach my $what ('requests', 'replies')
{
	my ($path, $name, $token) = begin_to_downgrade($what);
	$a1->query('COMMIT');
	$a1->query(release('read', $path));
	ok(!$b1->is_done, "$what lost, and withdrawn: another writer waits");
	$proxy->cut;
	ends_well($path, $token, "$what lost, and withdrawn");
}

# Another worker carries the downgrade on.
foreach my $what ('requests', 'replies')
{
	my ($path, $name, $token) = begin_to_downgrade($what);
	my $worker = $node_a->worker_pid;
	$node_a->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
	$node_a->wait_until("SELECT worker_pid IS DISTINCT FROM $worker FROM zk_status");
	$proxy->cut;
	$node_a->wait_until("SELECT worker_pid <> $worker AND state IN ('connected', 'idle') AND safe FROM zk_status");
	is($a1->errcode('COMMIT'), '', "$what lost with the worker: nothing else is");
	goes_on($path, $name, $token, "$what lost with the worker");
}

# Another client deletes the znode, before it is a reader's or afterwards: then others have the
# lock, and there is no place left to take.
foreach my $what (('requests', 'replies') x 2)
{
	my ($path, $name, $token) = begin_to_downgrade($what);
	$zk->delete("/zklock$path/" . (queue($path))[0]);
	ok($zk->wait_until(sub { $b1->is_done }, 'the other writer'),
		"$what lost, znode deleted: another writer has the lock");
	$proxy->cut;
	$node_a->wait_until_connected;
	$node_a->wait_until(
		"SELECT coalesce(bool_or(claim = 'lost'), false) FROM zk_locks WHERE path = '$path'");
	is($a1->errcode('COMMIT'), 'ZK001', "$what lost, znode deleted: the commit fails");
	$a1->query('SELECT zk_lock_release_all()');
	ends_well($path, $token, "$what lost, znode deleted");
}

# --- another client requests the release while the downgrade is under way ---

my $b2 = $node_b->backend;
my %request = (
	'Curator' => sub { my ($path, $name) = @_; $zk->set("/zklock$path/$name", '__REVOKE__'); },
	'zk_lock_revoke' => sub {
		my ($path) = @_;
		is($b2->query("SELECT zk_lock_revoke('$path')"), 1, 'the request has been written');
	});

foreach my $client (sort keys %request)
{
	my ($path, $name, $token) = begin_to_downgrade('requests');
	$request{$client}->($path, $name);
	$proxy->pass;
	wait_for_znode($node_a, $path, downgraded($name));
	is($a1->query("SELECT zk_lock_is_revoked('$path')"), 't', "a request of $client: heard");
	is($a1->errcode('COMMIT'), '', "a request of $client: nothing is lost");
	goes_on($path, $name, $token, "a request of $client");
}
$b2->quit;

# --- ZooKeeper itself goes away ---

foreach my $round (1 .. 4)
{
	my $path = "/away$round";
	$name = write_and_read($path);
	$token = $a1->query(token($path));
	queue_up($b1, $node_b, 'write', $path);
	$zk->pause if $round % 2;
	$a1->query(release('write', $path));
	$zk->kill9;
	$zk->start;
	$_->wait_until_connected foreach $node_a, $node_b;
	goes_on($path, $name, $token, "killed, round $round");
}

foreach my $round (1 .. 2)
{
	my $path = "/silent$round";
	$name = write_and_read($path);
	$token = $a1->query(token($path));
	queue_up($b1, $node_b, 'write', $path);
	$zk->pause;
	$a1->query(release('write', $path));
	usleep(200_000);
	ok(!$b1->is_done, "silent, round $round: another writer waits");
	$zk->resume;
	goes_on($path, $name, $token, "silent, round $round");
}

is_deeply([ grep { /__(READ|WRIT)__/ } @{ $zk->tree('/zklock') } ], [], 'nothing is left behind');
$_->quit foreach $a1, $a2, $a3, $b1;
$_->stop foreach $node_a, $node_b;
done_testing();
