import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * What an administrator does with a share group:
 * ShareOffsets BOOTSTRAP GROUP TOPIC describe | offsets | alter OFFSET | delete
 */
public final class ShareOffsets {
    public static void main(String[] arguments) throws Exception {
        String group = arguments[1];
        TopicPartition place = new TopicPartition(arguments[2], 0);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(settings)) {
            System.out.println(obey(admin, group, place, arguments));
        }
    }

    private static String obey(Admin admin, String group, TopicPartition place, String[] order)
            throws Exception {
        switch (order[3]) {
            case "describe":
                ShareGroupDescription found = admin.describeShareGroups(List.of(group)).all()
                    .get(20, TimeUnit.SECONDS).get(group);
                return found.groupState() + " " + found.members().size();
            case "offsets":
                SharePartitionOffsetInfo offset = admin
                    .listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(group).get(20, TimeUnit.SECONDS).get(place);
                return offset == null
                    ? "none"
                    : offset.startOffset() + " lag " + offset.lag().orElse(-1L);
            case "alter":
                admin.alterShareGroupOffsets(group, Map.of(place, Long.parseLong(order[4])))
                    .all().get(20, TimeUnit.SECONDS);
                return "ok";
            case "delete":
                admin.deleteShareGroupOffsets(group, Set.of(place.topic()))
                    .all().get(20, TimeUnit.SECONDS);
                return "ok";
            default:
                throw new IllegalArgumentException(order[3]);
        }
    }
}
