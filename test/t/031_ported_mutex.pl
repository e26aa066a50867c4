# What the tests of Curator and kazoo check of a mutex, as far as no other test does it:
# see test/ported-tests.md.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '20s', 'zklock.linger' => 0, 'zklock.tenure' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $b1) = map { $_->backend } $node_a, $node_b;

# --- kazoo: test_lock_many_threads_no_block ---

my @many = map { ($node_a->backend, $node_b->backend) } 1 .. 10;
foreach my $round (1 .. 5)
{
	my $at = $a1->query(q{SELECT clock_timestamp() + '300ms'});
	$_->send("SELECT pg_sleep(extract(epoch FROM '$at' - clock_timestamp())); " . try('/tries')) foreach @many;
	my @answers = map { $_->answer =~ s/^\n//r } @many;
	is(join('', sort @answers), 'f' x 19 . 't', "20 tries: one succeeds, round $round");
	my ($winner) = grep { $answers[$_] eq 't' } 0 .. $#many;
	is($many[$winner]->query(release('/tries')), 't', "20 tries: and holds it, round $round");
	$zk->wait_for_children('/zklock/tries', 0);
}
$_->quit foreach @many;

# --- kazoo: test_lock_no_double_calls, test_lock_same_thread_no_block ---

sub lease { my ($timeout) = @_; return "SELECT zk_semaphore_acquire('/once', 1, '$timeout')"; }
is($a1->query(lease('0')), 't', 'not re-entrant: held');
is($a1->query(lease('0')), 'f', 'not re-entrant: a second try fails');
is($a1->query(lease('200ms')), 'f', 'not re-entrant: and a second wait');
is($a1->query(q{SELECT zk_lock_is_held('/once')}), 't', 'not re-entrant: the first stays');
is($b1->query(lease('0')), 'f', 'not re-entrant: for others, too');
is($a1->query(q{SELECT zk_semaphore_release('/once')}), 't', 'not re-entrant: one release');
is($b1->query(lease('5s')), 't', 'not re-entrant: frees it');
$b1->query(q{SELECT zk_semaphore_release('/once')});

# --- Curator: testRevoking ---

$a1->query(acquire('/revoke'));
is($a1->query(q{SELECT zk_lock_is_revoked('/revoke')}), 'f', 'revoked: not yet');
$b1->send(acquire('/revoke'));
$node_b->wait_for_ticket('/revoke', 'queued');
my $znode = $a1->query(q{SELECT znode FROM zk_locks WHERE path = '/revoke'});
$zk->set("/zklock/revoke/$znode", '__REVOKE__');
$node_a->wait_until(q{SELECT revoked FROM zk_locks WHERE path = '/revoke'});
my $result = $a1->run(q{SELECT zk_lock_is_revoked('/revoke')});
is($result->{out}, 't', 'revoked: the holder can see it');
like($result->{err}, qr/NOTICE:.*release of lock "\/revoke" has been requested/, 'revoked: and is told');
unlike($a1->run(q{SELECT zk_lock_is_revoked('/revoke')})->{err}, qr/NOTICE/, 'revoked: once');
ok(!$b1->is_done, 'revoked: nothing is taken away');
is($a1->query(release('/revoke')), 't', 'revoked: the holder releases');
is($b1->answer, 't', 'revoked: the next has it');
is($b1->query(q{SELECT zk_lock_is_revoked('/revoke')}), 'f', 'revoked: and its release is not requested');
$b1->query(release('/revoke'));

# --- Curator: testLockACLs ---

# Another client may queue, and may delete its own znodes: the ACLs are those that it would set.
$a1->query(acquire('/acl/deep/job'));
($znode) = @{ $zk->children('/zklock/acl/deep/job') };
like($zk->get("/zklock/acl/deep/job/$znode", client => 'stranger')->{data}, qr/^server=a /, 'the ACL of a lock lets all read it');
foreach my $directory ('/zklock', '/zklock/acl', '/zklock/acl/deep', '/zklock/acl/deep/job')
{
	my $child = $zk->create("$directory/stranger-", sequence => 1, ephemeral => 1, client => 'stranger');
	ok($zk->exists($child), "the ACL of $directory lets all create in it");
	ok(scalar(grep { "$directory/$_" eq $child } @{ $zk->children($directory, client => 'stranger') }),
		"the ACL of $directory lets all list it");
	$zk->delete($child, client => 'stranger');
	ok(!$zk->exists($child), "the ACL of $directory lets all delete in it");
}
$a1->query(release('/acl/deep/job'));

# --- Curator: testWithNamespace ---

# Two names for one lock, and another lock.
my $node_c = ZklockNode->started('c', undef, %settings, 'zklock.hosts' => $zk->hosts . '/services/pg');
my $node_d = ZklockNode->started('d', $zk, %settings, 'zklock.root' => '/services/pg/zklock');
my ($c1, $d1) = map { $_->backend } $node_c, $node_d;
is($c1->query(acquire('/job')), 't', 'below a chroot: held');
is(scalar(@{ $zk->children('/services/pg/zklock/job') }), 1, 'below a chroot: its znode is there');
is($d1->query(try('/job')), 'f', 'below a chroot: the same as the full path');
is($a1->query(try('/job')), 't', 'below a chroot: another than without it');
$d1->send(acquire('/job'));
$node_d->wait_for_ticket('/job', 'queued');
is($c1->query(release('/job')), 't', 'below a chroot: released');
is($d1->answer, 't', 'below a chroot: the other has it');
is($c1->query(acquire('/job', '200ms')), 'f', 'below a chroot: and excludes');
$d1->query(release('/job'));
is($c1->query(acquire('/job', '5s')), 't', 'below a chroot: to and fro');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $c1;

# A parallel worker begins with the default of each setting, which has no chroot.
my $parallel = $node_c->safe_psql('postgres',
	q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
is($node_c->safe_psql('postgres', "SET $parallel = on; SELECT sum(n) FROM generate_series(1, 100) AS n"), '5050',
	'below a chroot: a parallel query');

$_->quit foreach $a1, $b1, $c1, $d1;
foreach my $node ($node_a, $node_b, $node_c, $node_d)
{
	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL'), '0', $node->name . ': no claim is left');
	$node->stop;
}
done_testing();
