// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F16},processor-top-optimize' %s | filecheck %s
//
// An attention, from the products with the weights of queries, keys and values to the product after the heads,
// becomes an Attention for each head.
// WEIGHT q_weight = 1 2 3
// WEIGHT k_weight = 1 2 3
// WEIGHT v_weight = 1 2 3
// WEIGHT o_weight = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x8xf32>) -> tensor<1x4x8xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32> loc("x")
    %q_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("q_weight")
    %none = "top.None"() : () -> none
    %q = "top.MatMul"(%x, %q_weight, %none) : (tensor<1x4x8xf32>, tensor<8x8xf32>, none) -> tensor<1x4x8xf32> loc("q")
    %k_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("k_weight")
    %k = "top.MatMul"(%x, %k_weight, %none) : (tensor<1x4x8xf32>, tensor<8x8xf32>, none) -> tensor<1x4x8xf32> loc("k")
    %v_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("v_weight")
    %v = "top.MatMul"(%x, %v_weight, %none) : (tensor<1x4x8xf32>, tensor<8x8xf32>, none) -> tensor<1x4x8xf32> loc("v")
    %q4 = "top.Reshape"(%q) {shape = [1, 4, 2, 4]} : (tensor<1x4x8xf32>) -> tensor<1x4x2x4xf32> loc("q4")
    %k4 = "top.Reshape"(%k) {shape = [1, 4, 2, 4]} : (tensor<1x4x8xf32>) -> tensor<1x4x2x4xf32> loc("k4")
    %v4 = "top.Reshape"(%v) {shape = [1, 4, 2, 4]} : (tensor<1x4x8xf32>) -> tensor<1x4x2x4xf32> loc("v4")
    %qh = "top.Permute"(%q4) {order = [0, 2, 1, 3]} : (tensor<1x4x2x4xf32>) -> tensor<1x2x4x4xf32> loc("qh")
    %kh = "top.Permute"(%k4) {order = [0, 2, 3, 1]} : (tensor<1x4x2x4xf32>) -> tensor<1x2x4x4xf32> loc("kh")
    %vh = "top.Permute"(%v4) {order = [0, 2, 1, 3]} : (tensor<1x4x2x4xf32>) -> tensor<1x2x4x4xf32> loc("vh")
    %scores = "top.MatMul"(%qh, %kh, %none) : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>, none) -> tensor<1x2x4x4xf32> loc("scores")
    %scaled = "top.MulConst"(%scores) {const_val = 5.000000e-01 : f64} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> loc("scaled")
    %p = "top.Softmax"(%scaled) {axis = 3} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> loc("p")
    %mixed = "top.MatMul"(%p, %vh, %none) : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>, none) -> tensor<1x2x4x4xf32> loc("mixed")
    %rows = "top.Permute"(%mixed) {order = [0, 2, 1, 3]} : (tensor<1x2x4x4xf32>) -> tensor<1x4x2x4xf32> loc("rows")
    %joined = "top.Reshape"(%rows) {shape = [1, 4, 8]} : (tensor<1x4x2x4xf32>) -> tensor<1x4x8xf32> loc("joined")
    %o_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("o_weight")
    %y = "top.MatMul"(%joined, %o_weight, %none) : (tensor<1x4x8xf32>, tensor<8x8xf32>, none) -> tensor<1x4x8xf32> loc("y")
    func.return %y : tensor<1x4x8xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32> loc("x")
// CHECK-NEXT: %q_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("q_weight")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %k_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("k_weight")
// CHECK-NEXT: %v_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("v_weight")
// CHECK-NEXT: %o_weight = "top.Weight"() : () -> tensor<8x8xf32> loc("o_weight")
// CHECK-NEXT: %y = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y_1 = "top.Attention"(%x, %x, %x, %q_weight, %none, %k_weight, %none, %v_weight, %none, %o_weight, %none, %y) {head = 2 : i64, scale = 5.000000e-01 : f64, tpusim.read_by = ["q", "k", "v"]}{{.*}} -> tensor<1x4x8xf32> loc("y")
// CHECK-NEXT: func.return %y_1 : tensor<1x4x8xf32>
