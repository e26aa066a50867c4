
# The link to ZooKeeper is slow: each reply takes a while, or few bytes a second come.

use strict;
use warnings;

use HoldingProxy;
use ZklockTest;

my $zk = ZooKeeper->new;
sub sessions { return scalar(() = $zk->cmd('dump') =~ /^\s+0x/mg); }

# --- each reply comes later than a connect to one of eleven addresses may take at first ---

my $proxy = HoldingProxy->new($zk->hosts, addresses => 11);
$proxy->delay(1);
$zk->create('/zklock');
my $before = sessions();
my $node = ZklockNode->initialized('a', undef, 'zklock.hosts' => $proxy->address,
	'zklock.session_timeout' => '20s', 'zklock.connection_timeout' => '1min');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
my $holder = $node->backend;
is($holder->run(acquire('/held', '1min'))->{out}, 't', 'a server connects');
is(sessions() - $before, 1, '... and leaves no other session behind');

my ($session, $connects) = split /\|/, $node->status('session_id, connects');
$proxy->cut;
ok($node->poll_query_until('postgres', "SELECT connects > $connects AND safe FROM zk_status"), 'a lost connection comes back');
is($node->status('session_id, connects'), "$session|" . ($connects + 1), '... with the same session, at the first reconnect');
is($holder->run(held('/held'))->{out}, 't', '... and the lock');
$holder->quit;
$node->stop;
done_testing();
